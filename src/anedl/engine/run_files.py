"""Names of the files of a run folder that other parts of the package look for; needs no torch."""

MODEL_FILES = {"last": "model.safetensors", "best": "best.safetensors"}
ERROR_FILE = "error.txt"  # the traceback of a try that failed
METHOD_FILE = "method.py"  # of a user's method: the file that was trained
CALIBRATION_FILE = "calibration.json"
FAMILIARITY_FILE = "familiarity.safetensors"  # of the model that is calibrated
