document.documentElement.classList.add("js");
document.querySelectorAll("table.sortable").forEach(startSorting);
startPrinting();
startContents();
