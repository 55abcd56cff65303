// What report.js draws with, and nothing else.
export {barX, dot, line, link, plot, ruleX, ruleY, text} from "@observablehq/plot";
