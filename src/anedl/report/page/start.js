document.documentElement.classList.add("js");
startSlider();
startPlane();
document.querySelectorAll("table.sortable").forEach(startSorting);
startPrinting();
startContents();
