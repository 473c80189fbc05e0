startSlider();
startPlane();
