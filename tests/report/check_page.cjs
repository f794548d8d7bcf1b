// Opens a page in a real browser without network and prints, as JSON, what is wrong with it: findings of axe
// in light, dark and at phone width, requests to a network, a page wider than its window, script errors.
// Usage: NODE_PATH=FOLDER/node_modules node check_page.cjs CHROMIUM PAGE.html [FOLDER_FOR_PICTURES]
// FOLDER is where `npm install axe-core puppeteer-core` was run.
const path = require("path");
const { pathToFileURL } = require("url");
const puppeteer = require("puppeteer-core");
const axe = require("axe-core");

const VIEWS = [
  { name: "light", width: 1280, scheme: "light" },
  { name: "dark", width: 1280, scheme: "dark" },
  { name: "phone", width: 390, scheme: "light" },
  { name: "phone-dark", width: 390, scheme: "dark" },
];

async function check(browser, file, view, pictures) {
  const page = await browser.newPage();
  const requests = [], errors = [];
  page.on("request", (request) => {
    if (!/^(file|data):/.test(request.url())) requests.push(request.url());
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.setViewport({ width: view.width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: view.scheme }]);
  await page.goto(pathToFileURL(path.resolve(file)).href);
  if (pictures) await page.screenshot({ path: path.join(pictures, `${view.name}.png`), fullPage: true });
  if (pictures && view.name === "light")
    await page.pdf({ path: path.join(pictures, "print.pdf"), format: "A4", printBackground: true });
  const facts = await page.evaluate(() => ({
    page_width: document.documentElement.scrollWidth,
    paper: getComputedStyle(document.body).backgroundColor,
    figures: document.querySelectorAll("svg[role=img]").length,
  }));
  await page.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));
  await page.evaluate(axe.source);
  const found = await page.evaluate(() => window.axe.run(document));
  const findings = found.violations.map((each) => ({
    id: each.id, impact: each.impact, help: each.help, nodes: each.nodes.map((node) => node.html.slice(0, 200)),
  }));
  await page.close();
  return { ...view, ...facts, requests, errors, findings, rules_passed: found.passes.length };
}

(async () => {
  const [chromium, file, pictures] = process.argv.slice(2);
  const browser = await puppeteer.launch({
    executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu"],
  });
  try {
    const views = [];
    for (const view of VIEWS) views.push(await check(browser, file, view, pictures));
    console.log(JSON.stringify({ axe: axe.version, views }));
  } finally {
    await browser.close();
  }
})().catch((error) => { console.error(error); process.exit(1); });
