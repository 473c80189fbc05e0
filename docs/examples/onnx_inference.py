"""Judge opaque 8-bit images by an exported model, without torch: onnx_inference.py MODEL IMAGE…"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
about = json.loads(session.get_modelmeta().custom_metadata_map["anedl"])
rule, names = about["preprocessing"], [output.name for output in session.get_outputs()]
for path in sys.argv[2:]:
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    image = image.resize((rule["resize"],) * 2, Image.Resampling.BILINEAR).crop(rule["crop_box"])
    pixels = np.asarray(image.convert("RGB" if rule["channels"] == 3 else "L"))
    pixels = pixels.reshape(1, rule["crop"], rule["crop"], -1).transpose(0, 3, 1, 2)
    values = [value[0].tolist() for value in session.run(None, {"images": pixels})]
    found = dict(zip(names, values, strict=True))
    print(json.dumps({"class": about["class_names"][np.argmax(found["probabilities"])], **found}))
