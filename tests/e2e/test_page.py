"""The page at /, in a real Chromium: it shows true figures, goes on by itself, and says so when the server is gone; and
how it looks. UNSEEN_SCREENSHOTS=DIR keeps the pictures; UNSEEN_SCREENSHOT=docs/page.png makes that of docs/monitoring.md.
"""
import base64
import contextlib
import http.server
import json
import math
import os
import pathlib
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request

import jsonschema
import pytest

from conftest import DAY, HOUR, REPO, START, free_port, run, until
from test_accounts import account
from test_replica import make_follower

pytest.importorskip("selenium", reason="python3-selenium is not installed")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.options import Options  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--disable-background-networking", "--window-size=1150,900", f"--user-data-dir={folder}/chromium"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium):
    """One browser, and a tab of its own for each test, whose server is another origin."""
    first = chromium.current_window_handle
    chromium.switch_to.new_window("tab")
    for log in ("performance", "browser"):
        chromium.get_log(log)
    yield chromium
    chromium.close()
    chromium.switch_to.window(first)


@pytest.fixture
def served(make_server):
    port = free_port()
    server = make_server(http=f"127.0.0.1:{port}")
    server.page = f"http://127.0.0.1:{port}/"
    return server


def text(browser, element):
    return browser.find_element(By.ID, element).text


def shown(browser, selector, of="e.innerText"):
    """Of all elements there, in one look: the page puts new ones in their place at any time."""
    return browser.execute_script(f"return [...document.querySelectorAll(arguments[0])].map(e => {of})", selector)


def wait(what, browser=None):
    """Until it is true; what the page shows may be replaced while it is read."""
    last = []

    def good():
        try:
            return what()
        except Exception as e:  # an element that has just been replaced
            last[:] = [e]
            return False

    until(good, lambda: f"never came: {last}; the page says:\n"
          + (browser.find_element(By.TAG_NAME, "body").text if browser else ""))


def slot_row(browser, slot):
    return browser.execute_script("return [...document.querySelectorAll('#slots tr')].map(r => [...r.cells].map(c => "
                                  "c.innerText.trim()))")[slot]


def validate(value, name):
    described = json.loads((REPO / "etc" / "openapi.json").read_text())
    jsonschema.validate(value, {**described, "$ref": f"#/components/schemas/{name}"})


def ask(browser, user, item):
    for field, value in (("user", user), ("item", item)):
        box = browser.find_element(By.ID, field)
        box.clear()
        box.send_keys(value)
    browser.find_element(By.CSS_SELECTOR, "#ask-form button").click()


def test_true_figures_that_go_on_by_themselves(served, browser):
    with served.client() as c:
        c.command("PLAYED", "u1", "v9", "v10")
        browser.get(served.page)
        wait(lambda: text(browser, "state") == "healthy", browser)
        wait(lambda: slot_row(browser, 0)[1:4] == ["open", "2", "1"], browser)
        assert len(browser.find_elements(By.CSS_SELECTOR, "#wheel path.slot")) == 6
        assert "Nothing was flushed yet" in text(browser, "months-note")

        # Without a reload: another play, then a flush.
        c.command("PLAYED", "u2", "v9")
        wait(lambda: slot_row(browser, 0)[2:4] == ["3", "2"], browser)
        c.command("RING", "FLUSH")
        wait(lambda: slot_row(browser, 1)[1] == "open" and slot_row(browser, 0)[1] == "empty", browser)
        wait(lambda: shown(browser, ".month", "e.dataset.month") == ["2026-11"], browser)  # maybe of the next answer
        stored = int(served.sqlite("history.db", "SELECT bytes FROM months"))
        wait(lambda: f"{stored} B" in shown(browser, ".month")[0], browser)
        assert "3 plays of 2 users" in shown(browser, ".month")[0]
        assert int(text(browser, "clients")) == 1


def test_has_this_user_seen_this_item(served, browser):
    nasty = "<img src=x onerror=document.title='broken'>"
    with served.client() as c:
        c.command("PLAYED", "u1", "old")
        c.command("RING", "FLUSH")
        c.command("PLAYED", "u1", nasty)
        c.command("DELIVERED", "u1", "sent")
    browser.get(served.page)
    ask(browser, "u1", "old")
    wait(lambda: "Seen: old is hidden from u1" in text(browser, "answer") and "the filter of 2026-11" in text(browser, "answer"),
         browser)
    ask(browser, "u1", nasty)
    wait(lambda: nasty in text(browser, "answer") and "in the ring" in text(browser, "answer"), browser)
    ask(browser, "u1", "sent")
    wait(lambda: "among the last items sent" in text(browser, "answer"), browser)
    ask(browser, "u1", "new")
    wait(lambda: text(browser, "answer").startswith("Unseen: new may be shown to u1"), browser)
    assert browser.title.endswith(" · primary · Unseen")


def test_a_user_and_many_candidates(served, browser):
    """What is remembered, why each pasted item is hidden; the address leads there again."""
    with served.client() as c:
        c.command("PLAYED", "u 1%", "old")
        c.command("RING", "FLUSH")
        c.command("PLAYED", "u 1%", "new", "newer")
        c.command("DELIVERED", "u 1%", "sent")
    browser.get(served.page)
    ask(browser, "u 1%", "old\nnew\nsent\nnever")
    wait(lambda: "1 of 4 may be shown to u 1%" in text(browser, "answer"), browser)
    assert [row for row in shown(browser, "#why tr:not(.more)")] == ["old\tseen", "new\tseen", "sent\tseen", "never\tunseen"]
    assert "the filter of 2026-11" in shown(browser, "#why .more")[0]
    assert "2 plays in the ring, 1 delivery" in text(browser, "remembered")
    assert shown(browser, "#user-months tbody tr")[0].split("\t")[:2] == ["2026-11", "1"]
    address = browser.current_url
    ask(browser, "stranger", "")
    wait(lambda: text(browser, "answer") == "Nothing is remembered of stranger.", browser)
    browser.get("about:blank")
    browser.get(address)
    wait(lambda: "2 plays in the ring" in text(browser, "answer"), browser)
    ask(browser, "u", "\n".join(f"v{n}" for n in range(201)))
    wait(lambda: "201 items, expected at most 200" in text(browser, "answer"), browser)


def test_a_day_and_a_month_survive_a_kill(served, browser):
    """And what the day was worth: repeats that were kept away, over the restart."""
    with served.client() as c:
        c.command("PLAYED", "u", "a", "b")
        for _ in range(3):
            c.command("UNSEEN", "u", "a", "b", "c", "d")
            served.advance(5 * 60 * 1000)
            status(served)  # notes a mark at this moment
    kept = "SELECT length(value) - length(replace(value, char(10), '')) FROM meta WHERE name = 'span_day'"
    wait(lambda: served.sqlite("staging.db", kept).strip() in ("2", "3"))
    before = get(served, "/v1/timeline?span=day")["points"]
    served.kill()
    served.start()
    for name in ("day", "month"):
        validate(get(served, f"/v1/timeline?span={name}"), "Timeline")
    after = get(served, "/v1/timeline?span=day")["points"]
    assert len(after) >= 2 and after == before[:len(after)]
    assert sum(p["questions"] * p["seconds"] for p in after) > 1.9 and after[-1]["hidden"] == .5
    month = get(served, "/v1/timeline?span=month")["points"]
    assert len(month) == 1 and abs(month[0]["seconds"] - sum(p["seconds"] for p in after)) < 1
    today = status(served)["today"]
    assert today["candidates"] == 4 * len(after) and today["hidden"] == 2 * len(after)
    browser.get(served.page)
    wait(lambda: f"Today {2 * len(after)} repeats were kept away, 50 %" in text(browser, "worth"), browser)
    browser.find_element(By.CSS_SELECTOR, "[data-span=day]").click()
    wait(lambda: "in the last day" in browser.execute_script("return document.getElementById('rate-chart').getAttribute('aria-label')"),
         browser)
    with pytest.raises(urllib.error.HTTPError, match="400"):
        get(served, "/v1/timeline?span=year")


def test_which_node_it_is(served, browser):
    browser.get(served.page)
    wait(lambda: text(browser, "state") == "healthy", browser)
    assert text(browser, "who") == f"{socket.gethostname()} · primary · {served.data}"
    assert browser.title == f"{socket.gethostname()} · primary · Unseen"

    assert text(browser, "begun") == "history since 2026-11-21 10:00:00 UTC"
    assert browser.find_element(By.ID, "begun").get_attribute("class") == "small wait"

    def icon():
        return browser.execute_script("return document.getElementById('icon').href")
    healthy = icon()
    served.kill()
    wait(lambda: text(browser, "state") == "no answer" and icon() != healthy, browser)


def test_pools_sessions_and_the_slow_log(make_server, browser):
    port = free_port()
    server = make_server(http=f"127.0.0.1:{port}", slowlog_slower_than="0ms")
    with server.client() as c:
        c.command("POOL", "SET", "today", "a", "b", "c")
        c.command("BLOCK", "s1", "7")
        c.command("PLAYED", "secret-user", "a")
    browser.get(f"http://127.0.0.1:{port}/")
    wait(lambda: "3 items in " in shown(browser, "#pools")[0] and "1 since the start" in shown(browser, "#sessions")[0], browser)
    wait(lambda: "played" in shown(browser, "#slow")[0].lower(), browser)
    assert "secret-user" not in browser.page_source
    for link in shown(browser, "footer a", "e.href"):
        with urllib.request.urlopen(link) as answer:
            assert answer.status == 200, link


def test_rates_and_latencies(served, browser):
    browser.get(served.page)
    with served.client() as c:
        def some():
            c.command("PLAYED", "u", "a")
            c.command("UNSEEN", "u", "a", "b")
            return (text(browser, "questions")[0] in "123456789" and text(browser, "writes")[0] in "123456789"
                    and text(browser, "hidden") == "50.0 %" and text(browser, "question-p99").endswith("s"))
        # The server's clock stands still: a second passes when the test says so.
        def moved():
            served.advance(1000)
            return some()
        wait(moved, browser)


def test_says_so_when_the_server_is_gone_and_when_it_is_back(served, browser):
    browser.get(served.page)
    wait(lambda: text(browser, "state") == "healthy", browser)
    served.kill()
    wait(lambda: text(browser, "state") == "no answer", browser)
    assert "does not answer, since" in text(browser, "banner-text")
    served.start()
    wait(lambda: text(browser, "state") == "healthy" and not browser.find_element(By.ID, "banner").is_displayed(), browser)


def test_trouble_and_warnings_are_shown(make_server, browser):
    port = free_port()
    make_server(http=f"127.0.0.1:{port}", min_free="16TiB")
    browser.get(f"http://127.0.0.1:{port}/")
    wait(lambda: text(browser, "state") == "in trouble", browser)
    assert "writes are refused: less than min_free" in text(browser, "banner-text")
    wait(lambda: "disk nearly full, plays are refused" in text(browser, "warning-rows"), browser)


def test_a_doubted_clock_says_what_to_type(served, browser):
    browser.get(served.page)
    wait(lambda: text(browser, "state") == "healthy", browser)
    assert not browser.find_element(By.ID, "banner").is_displayed()
    with served.client() as c:
        assert c.command("DEBUG", "JUMP", str(40 * 24 * HOUR)) == b"OK"
        wait(lambda: "The clock is not believed: " in text(browser, "banner-text"), browser)
        assert "unseen clock --accept" in text(browser, "banner-text")
        assert text(browser, "state") == "healthy"  # writes go on
        c.command("CLOCK", "ACCEPT")
    wait(lambda: not browser.find_element(By.ID, "banner").is_displayed(), browser)


def test_the_last_backup_and_the_next(served, browser):
    cases = [
        ({}, "none yet", "wait", "none is scheduled"),
        ({"good_at": -2 * HOUR, "next_at": 22 * HOUR}, "2 h ago", "good", "whole and checked; the next in 22 h"),  # of the run before
        ({"good_at": -27 * HOUR, "next_at": -HOUR}, "27 h ago", "wait", "the next is due now"),
        ({"good_at": -2 * HOUR, "last_at": -2 * HOUR, "last_ok": True, "last_bytes": 5 << 20}, "2 h ago", "good",
         "whole and checked, 5.0 MiB; none is scheduled"),
        ({"good_at": -26 * HOUR, "last_at": -2 * HOUR, "last_error": "no room", "next_at": -HOUR}, "failed 2 h ago", "bad",
         "no room; the last whole one 26 h ago; the next is due now"),
        ({"good_at": -2 * HOUR, "problems": 1}, "2 h ago", "bad", "its check found 1 problem"),
    ]
    paths = ("/v1/status", "/v1/timeline", "/v1/ring", "/v1/months", "/v1/policies")
    answers = {path: get(served, path) for path in paths}
    says = answers["/v1/status"]
    before = dict(says["backup"])
    with told(browser, answers):
        browser.get(browser.page)
        for told_of, value, kind, note in cases:
            says["backup"] = {**before, **{k: says["now"] + v if k.endswith("_at") else v for k, v in told_of.items()}}
            validate(says, "Status")
            wait(lambda: note in shown(browser, "#backup")[0], browser)
            assert shown(browser, "#backup .value", "[e.innerText, e.classList.contains('%s')]" % kind) == [[value, True]]


def test_asks_for_the_password(make_server, browser):
    port = free_port()
    make_server(http=f"127.0.0.1:{port}", requirepass="s3cret")
    browser.get(f"http://127.0.0.1:{port}/")
    wait(lambda: text(browser, "state") == "password needed", browser)
    for password, state in (("wrong", "password needed"), ("s3cret", "healthy")):
        wait(lambda: browser.find_element(By.ID, "password").is_displayed(), browser)
        browser.find_element(By.ID, "password").send_keys(password)
        browser.find_element(By.CSS_SELECTOR, "#login-form button").click()
        wait(lambda: text(browser, "state") == state, browser)
    assert not browser.find_element(By.ID, "login").is_displayed()


def test_asks_for_an_account(make_server, browser, folder):
    port = free_port()
    account(folder / "accounts", "add", "bob", "--roles", "watch", password="pässword")
    account(folder / "accounts", "add", "ann", "--roles", "ask", password="x")
    make_server(http=f"127.0.0.1:{port}", accounts=str(folder / "accounts"))
    browser.get(f"http://127.0.0.1:{port}/")
    wait(lambda: text(browser, "state") == "password needed", browser)
    for name, password, note in (("bob", "wrong", "is wrong"), ("ann", "x", "needs the role watch"), ("bob", "pässword", "")):
        wait(lambda: browser.find_element(By.ID, "password").is_displayed(), browser)
        browser.find_element(By.ID, "account").clear()
        browser.find_element(By.ID, "account").send_keys(name)
        browser.find_element(By.ID, "password").send_keys(password)
        browser.find_element(By.CSS_SELECTOR, "#login-form button").click()
        wait(lambda: note in text(browser, "login-note") if note else text(browser, "state") == "healthy", browser)


def test_nothing_is_fetched_from_elsewhere_and_nothing_is_wrong(served, browser):
    browser.get(served.page)
    wait(lambda: text(browser, "state") == "healthy" and len(browser.find_elements(By.CSS_SELECTOR, "#slots tr")) == 6, browser)
    asked = set()
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    away = {url for url in asked if not url.startswith((served.page, "data:", "chrome:"))}
    assert not away and any(url.endswith("/v1/status") for url in asked), asked
    assert not [line for line in browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
    with urllib.request.urlopen(served.page) as page:
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"


# --- how it looks: pictures in light, dark and on a phone, and what can be measured of them ---

SCREENS = {"light": ("light", 1150), "dark": ("dark", 1150), "mobile": ("light", 390), "mobile-dark": ("dark", 390)}

MEASURES = """
const shown = e => e.checkVisibility() && e.getClientRects().length > 0, found = [], say = e => e.id || e.className || e.tagName;
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) found.push(`the page scrolls sideways: ${document.documentElement.scrollWidth} of ${width}`);
for (const e of document.querySelectorAll("body *")) {
  if (!shown(e) || e.closest("svg")) continue;
  const box = e.getBoundingClientRect();
  if (box.right > width + .5 || box.left < -.5) found.push(`${say(e)} stands out: ${box.left} to ${box.right}`);
  if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline" && e.tagName !== "INPUT") found.push(`${say(e)} is cut off: ${e.textContent}`);
}
for (const e of document.querySelectorAll(".figures dt, .figures dd, th, td:not(.prose), .month div:not(.bar), .store dt, .value, .pill, button, figcaption span")) {
  const range = document.createRange();
  range.selectNodeContents(e);
  const tops = [...range.getClientRects()].filter(r => r.width > 1);
  if (shown(e) && tops.length && Math.max(...tops.map(r => r.top)) >= Math.min(...tops.map(r => r.bottom))) found.push(`${say(e)} wraps: ${e.textContent}`);
}
const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (c !== "rgba(0, 0, 0, 0)" && c !== "transparent") return c; } return "rgb(255, 255, 255)"; };
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let looked = 0;
for (let node; (node = walker.nextNode());) {
  const e = node.parentElement;
  if (!node.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName) || !shown(e)) continue;
  const a = light(e.closest("svg") ? getComputedStyle(e).fill : getComputedStyle(e).color), b = light(ground(e));
  const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (contrast < 4.5) found.push(`${say(e)} is hard to read, ${contrast.toFixed(1)}: ${node.data}`);
  looked++;
}
for (const e of document.querySelectorAll("svg text")) {
  const box = e.getBoundingClientRect(), svg = e.closest("svg").getBoundingClientRect();
  if (shown(e) && (box.left < svg.left - .5 || box.right > svg.right + .5)) found.push(`${e.textContent} stands out of its drawing`);
}
const labels = [...document.querySelectorAll(".chart text")].filter(shown).map(e => e.getBoundingClientRect());
labels.forEach((a, i) => labels.slice(i + 1).forEach(b => { if (a.left < b.right && b.left < a.right && a.top < b.bottom - 2 && b.top < a.bottom - 2) found.push("labels of a chart overlap"); }));
return [found, looked];
"""


def pictures(browser, name, folder, ready):
    """Takes the pictures of a scene and measures them. They go to UNSEEN_SCREENSHOTS, if that is set."""
    where = pathlib.Path(os.environ.get("UNSEEN_SCREENSHOTS", folder))
    where.mkdir(exist_ok=True)
    grounds = {}
    for screen, (scheme, width) in SCREENS.items():
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1,
                                                                       "mobile": width < 500})
        browser.get(browser.page)
        wait(ready, browser)
        found, looked = browser.execute_script(MEASURES)
        assert not found, (name, screen, found)
        assert looked > 3
        grounds[screen] = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        height = browser.execute_script("return document.documentElement.scrollHeight")
        picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": {
            "x": 0, "y": 0, "width": width, "height": height, "scale": 1}})["data"]
        path = where / f"{name}-{screen}.png"
        path.write_bytes(base64.b64decode(picture))
        assert path.stat().st_size > 5000
    assert grounds["light"] == grounds["mobile"] != grounds["dark"] == grounds["mobile-dark"]


def get(server, path):
    with urllib.request.urlopen(server.page + path.lstrip("/")) as answer:
        return json.load(answer)


def status(server):
    return get(server, "/v1/status")


def live(server):
    """Months in every state, and an hour in which it was busy, idle, and asked nothing."""
    with server.client() as c:
        for month in range(7):
            for user in range(40 * (7 - month)):
                c.command("PLAYEDAT", f"u{user}", START - month * 30 * DAY, *[f"v{month}-{n}" for n in range(30 + user)])
        c.command("RING", "FLUSH")
    server.advance(20 * DAY)
    server.advance(15 * HOUR)  # a night: months are sealed, the oldest is being swept
    server.advance(HOUR // 3)
    with server.client() as asks, server.client() as plays:
        plays.command("BACKUP", str(server.folder / "copy"))
        for step in range(240):
            users = range(0 if 100 < step < 120 else 80 + int(60 * math.sin(step / 15) + 15 * math.sin(step / 2)))
            asks.pipeline([("UNSEEN", f"u{u}", *[f"v0-{n}" for n in range(2 * u + 10)]) for u in users])
            plays.pipeline([("PLAYED", f"u{u}", f"x{step}", f"y{step}") for u in users[::4]] or [("PING",)])
            server.advance(15000)
            status(server)


def ready(browser, *more):
    """Shown, and painted with what came last."""
    return lambda: text(browser, "state") != "connecting" and all(more_is() for more_is in more)


def test_how_it_looks_with_data(served, browser, folder):
    live(served)
    browser.page = served.page
    browser.get(served.page)
    wait(lambda: browser.find_elements(By.CSS_SELECTOR, "#p99-chart path"), browser)
    check_charts(served, browser)
    check_store(served, browser)

    def shown():
        if text(browser, "answer") == "":
            ask(browser, "u7", "v2-3")
        return "Seen" in text(browser, "answer")
    pictures(browser, "data", folder, ready(browser, shown))
    if "UNSEEN_SCREENSHOT" in os.environ:
        path = pathlib.Path(os.environ.get("UNSEEN_SCREENSHOTS", folder)) / "data-light.png"
        shutil.copy(path, os.environ["UNSEEN_SCREENSHOT"])


def check_charts(server, browser):
    """What is drawn is what the server says: each point a level piece, as high as its value and as wide as its time."""
    told = get(server, "/v1/timeline")
    assert len(told["points"]) == 240
    for chart, fields in (("rate", ["questions", "writes"]), ("p99", ["question_p99_ms", "write_p99_ms"])):
        top, low, high, left, right, paths, texts = browser.execute_script("""
            const svg = document.getElementById(arguments[0] + "-chart"), grid = [...svg.querySelectorAll(".grid")], of = a => grid.map(e => +e.getAttribute(a));
            return [+svg.dataset.top, Math.max(...of("y1")), Math.min(...of("y1")), of("x1")[0], of("x2")[0],
                    [...svg.querySelectorAll("path.line")].map(e => e.getAttribute("d")), [...svg.querySelectorAll("text")].map(e => e.textContent)]""", chart)
        assert "UTC" in texts and sum(re.fullmatch(r"\d\d:\d0", t) is not None for t in texts) >= 4 and len(paths) == 2
        for field, d in zip(fields, paths):
            drawn = [tuple(map(float, piece.split())) for piece in re.split("[ML]", d)[1:]]
            expected = [p for p in told["points"] if p[field] is not None]
            assert len(drawn) == 2 * len(expected), (chart, field)
            for point, (x0, y0), (x1, y1) in zip(expected, drawn[::2], drawn[1::2]):
                assert y0 == y1 and abs(y1 - (low - (low - high) * min(point[field], top) / top)) < 0.11
                assert abs(x1 - (right - (right - left) * (told["now"] - point["at"]) / HOUR)) < 0.11
                assert abs(x1 - x0 - (right - left) * 1000 * point["seconds"] / HOUR) < 0.21 or x0 == left  # begins earlier
        peaks = sum(p[field] > top for field in fields for p in told["points"] if p[field] is not None)
        assert len(shown(browser, f"#{chart}-chart .peak", "1")) == peaks <= .01 * len(fields) * len(told["points"])
    # Who points at a moment reads its value.
    browser.execute_script("""
        const svg = document.getElementById("rate-chart"), box = svg.getBoundingClientRect();
        svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 52 + (box.width - 58) * .7521, clientY: box.top + 40}))""")
    pointed = next(p for p in told["points"] if p["at"] >= told["now"] - HOUR * (1 - .7521))
    caption = text(browser, "rate-caption")
    assert time.strftime("%H:%M:%S", time.gmtime(pointed["at"] / 1000)) in caption, (caption, pointed)
    assert f"questions {pointed['questions']:.1f}" in caption
    gaps = sum(p["question_p99_ms"] is None for p in told["points"])
    assert gaps >= 19, "nobody asked for five minutes"


def check_store(server, browser):
    """Every line of the list says what the server said."""
    def rows():
        return dict(shown(browser, "#store-rows > div", "[e.id, e.innerText]"))
    # A list of months that isn't in memory is told as it was last read: what is of now comes with the page's next look.
    wait(lambda: len(rows()) == 10 and "%" in rows()["sweep"], browser)
    said, told = rows(), status(server)
    assert " free of " in said["disk"] and "Data: " in said["disk"] and " in 60 min" in said["disk"]
    assert "whole and checked" in said["backup"] and "60 min ago" in said["backup"]
    assert "2026-05" in said["sweep"]
    assert "spent" in said["budget"] and "1 in 1,000 candidates" in said["budget"]
    assert told["error_budget"]["spent"] > 0
    months = dict(shown(browser, ".month", "[e.dataset.month, e.className]"))
    assert [m for m, kind in months.items() if "window" in kind] == ["2026-12", "2026-11", "2026-10", "2026-09"]
    assert len(months) == 8
    assert "p50" in text(browser, "now") and "p99" in text(browser, "now")


def test_how_it_looks_empty(served, browser, folder):
    browser.page = served.page
    pictures(browser, "empty", folder, ready(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "#slots tr")) == 6,
                                             lambda: browser.execute_script("return document.getElementById('p99-chart').textContent")
                                             .endswith("the first point comes after 15 s")))
    assert "none yet" in shown(browser, "#backup")[0]


def test_how_it_looks_when_writes_are_refused(make_server, browser, folder):
    port = free_port()
    make_server(http=f"127.0.0.1:{port}", min_free="16TiB")
    browser.page = f"http://127.0.0.1:{port}/"
    pictures(browser, "refused", folder, ready(browser, lambda: text(browser, "state") == "in trouble",
                                               lambda: "writes are refused" in text(browser, "banner-text"),
                                               lambda: browser.find_element(By.ID, "disk").is_displayed()))


def test_how_it_looks_with_a_wrong_password(make_server, browser, folder):
    port = free_port()
    server = make_server(http=f"127.0.0.1:{port}", requirepass="s3cret")
    server.page = browser.page = f"http://127.0.0.1:{port}/"

    def refused():
        if "wrong" not in text(browser, "login-note"):
            browser.find_element(By.ID, "password").send_keys("guess")
            browser.find_element(By.CSS_SELECTOR, "#login-form button").click()
        return "Account or password is wrong" in text(browser, "login-note")
    pictures(browser, "password", folder, ready(browser, refused))
    assert not browser.find_element(By.ID, "now").is_displayed()


class Told(http.server.BaseHTTPRequestHandler):
    """The page, and answers as a server in a certain state gives them."""

    def do_GET(self):
        body, kind = (REPO / "etc/page.html").read_bytes(), "text/html"
        if self.path != "/":
            body, kind = json.dumps(self.server.answers[self.path]).encode(), "application/json"
        self.send_response(json.loads(body).get("status", 200) if kind == "application/json" else 200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def told(browser, answers):
    """A server in a state that a real one can't be held in. The answers are of the described form."""
    for path, answer in answers.items():
        validate(answer, "Problem" if "type" in answer else path[len("/v1/"):].capitalize())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Told)
    server.answers = answers
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser.page = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def test_how_it_looks_while_it_recovers(served, browser, folder):
    says = status(served)
    says.update(ready=False, trouble="recovering: what was staged is being read", backup=None, growth=None, recent=None,
                figures={"questions": 0})
    with told(browser, {"/v1/status": says, "/v1/timeline": {"now": says["now"], "step_ms": 15000, "points": []}}):
        pictures(browser, "recovering", folder, ready(browser, lambda: text(browser, "state") == "recovering"))
        assert "what was staged is being read" in text(browser, "banner-text")
        assert not browser.find_element(By.ID, "ring").is_displayed()


def test_how_it_looks_at_work(served, browser, folder):
    """Everything under way at once, something failed, and figures as long as they get."""
    says, ring = status(served), get(served, "/v1/ring")
    now = says["now"]
    says["recent"] = {"seconds": 15, "questions": 48321.7, "writes": 123456.7, "errors": 1234.5, "hidden": .9999, "question_p50_ms": .174,
                      "question_p99_ms": 1234.5, "write_p50_ms": 99.4, "write_p99_ms": 10000}
    says["growth"] = {"bytes": 80 << 30, "seconds": 3600}
    says["error_budget"] = {"error_rate": .001, "expected": 1234567.8, "spent": 1.234}
    says["backup"] = {"phase": "history", "done": 300 << 30, "total": 1000 << 30, "last_at": now, "last_ok": False,
                      "last_error": "", "last_bytes": 0, "problems": 0, "good_at": now, "next_at": now}
    says["figures"].update(flush_users=12345678, flush_users_done=1234567, disk_bytes=14 << 40, disk_free_bytes=1200 << 30,
                           history_file_bytes=1000 << 30, grpc_connections=1, grpc_open_calls=256, grpc_calls=123456789,
                           grpc_messages=1234567890, grpc_errors=12)
    says.update(clients=9999, max_clients=10000, warnings=[
        {"at": now, "level": "error", "text": "flush failed error=\"history.db: disk I/O error\" users=12345678 " + "x" * 200}])
    for slot, state in zip(ring["slots"], ("closed", "flushing", "failed", "emptying", "open", "empty")):
        slot.update(state=state, rows=123456789, users=12345678, memory=9999 << 20, since=now - 47 * HOUR)
    ring["slots"][2].update(last_error="history.db: disk I/O error, user " + "u" * 120, retry=now + 90000)
    ring.update(memory=60000 << 20, memory_limit=61440 << 20, turn=1234567)
    consumer = {"since": 0, "listens": True, "cursor": 123456789, "last": 246913578, "events": 0, "behind_ms": 0, "left_out": 0}
    says["feed"] = [{**consumer, "consumer": "mirror", "state": "in step"},
                    {**consumer, "consumer": "replica-frankfurt-2-of-eu-west1", "state": "behind", "since": now - 47 * HOUR, "events": 123456789, "behind_ms": 47 * HOUR},
                    {**consumer, "consumer": "off", "state": "behind", "since": now - 1000, "listens": False, "events": 1, "behind_ms": 1000},
                    {**consumer, "consumer": "lost", "state": "lost", "since": now - HOUR, "left_out": 123456789}]
    replica = {"node": "00000000000000b1", "address": "10.0.0.2:7979", "connected": True, "state": "in step", "events": 0, "behind_ms": 0, "clock_apart_ms": 0}
    says["front"] = {"state": "filling", "cause": "", "redis": "redis-front.recommenders.svc.cluster.local:6379", "full": False, "since": 0,
                     "epoch": 12, "to": 123456789, "waiting": 123456789, "waiting_bytes": 9 << 30, "behind_ms": 61500, "lost_since": now - HOUR,
                     "dirty": 12345, "filled": 12345678, "rebuilds": 2, "comparing": False, "compared": 123456789, "differences": 2,
                     "reconciled_at": now - 47 * HOUR, "named": ["user " + "u" * 200 + ": month 2026-11", "user u2: deliveries"]}
    says["replication"].update(address="10.0.0.1:7979", term=3, ack={"mode": "replica", "in_step": False, "waiting": 2, "alone": 1}, replicas=[
        replica, {**replica, "node": "00000000000000b2", "address": "", "state": "behind", "events": 123456789, "behind_ms": 61500, "clock_apart_ms": -30000},
        {**replica, "address": "unseen-2.unseen-headless.recommenders.svc.cluster.local:7979", "connected": False, "state": "lost", "events": 5}])
    partition = {"topic": "plays", "partition": 0, "next": 123456789012, "end": 123456790247, "lag": 1235, "lag_ms": 61500, "rate": 52345.6,
                 "messages": 123456789, "dead": 0, "error": ""}
    says["kafka"] = {"state": "reading", "cause": "", "group": "unseen", "assigned": 64, "lag": 2470, "lag_ms": 61500, "rate": 104691.2,
                     "dead_letters": 1, "rebalances": 12, "error": "broker-2.eu-west1.example:9093: Disconnected", "error_at": now - HOUR,
                     "partitions": [{**partition}, {**partition, "topic": "t" * 249, "partition": 63, "dead": 77, "error": "x" * 255},
                                    {**partition, "partition": 2, "next": None, "end": None, "lag": None, "lag_ms": None, "rate": 0}]}
    months = [{"month": f"2026-{12 - i:02}", "users": 50000000, "plays": 123456789012, "bytes": (900 - 9 * i) << 30, "state": state, "progress": .4321,
               "in_window": i < 4} for i, state in enumerate(("live", "sealing", "sealed", "sealed", "sealed", "expiring"))]
    points = [{"at": now - 15000 * i, "seconds": 15, "questions": 50000 + 100 * i, "writes": 3000, "errors": 0, "hidden": None, "question_p50_ms": 1,
               "question_p99_ms": 1000 + i, "write_p50_ms": 1, "write_p99_ms": None} for i in range(239, -1, -1)]
    validate(says, "Status")
    with told(browser, {"/v1/status": says, "/v1/timeline": {"now": now, "step_ms": 15000, "points": points}, "/v1/ring": ring,
                        "/v1/months": {"months": months}, "/v1/policies": {"policies": []}}):
        pictures(browser, "work", folder, ready(browser, lambda: browser.find_element(By.ID, "budget").is_displayed()))
        said = dict(shown(browser, "#store-rows > div", "[e.id, e.innerText]"))
        assert "10 % done" in said["flush"] and "1,234,567 of 12,345,678 users" in said["flush"]
        assert "2026-11: 43 %" in said["seal"] and "2026-07: 43 %" in said["sweep"]
        assert text(browser, "now-note").endswith("Over gRPC: 1 connection, 256 open calls; 123,456,789 calls and 1,234,567,890 messages "
                                                  "since the start, 12 refused.")
        assert "history, 30 %" in said["backup"] and "123 % spent" in said["budget"] and "1 in 810 is" in said["budget"]
        assert "80 GiB more in 60 min; at this pace full in 15 h" in said["disk"]
        feed = shown(browser, "#feed-rows > div", "[e.querySelector('.value').innerText, e.innerText]")
        assert [value for value, _ in feed] == ["in step", "123,456,789 events, 47 h behind", "1 event, 1 s behind", "lost"]
        assert "done up to event 123,456,789 of 246,913,578" in feed[1][1] and "not running" in feed[2][1]
        assert pair(browser) == ["10.0.0.1:7979 primary · this node", "in step", "10.0.0.2:7979 replica", "", "123,456,789 events, 62 s behind",
                                 "00000000000000b2 replica", "", "lost: clone it again",
                                 "unseen-2.unseen-headless.recommenders.svc.cluster.local:7979 replica"]
        assert text(browser, "pair-note") == ("Term 3; a write is answered once it is durable on a replica, too; out of step; 1 write was answered by this "
                                              "node alone; the clock of 00000000000000b2 is 30 s behind")
        assert text(browser, "kafka-state") == "reading" and "wait" in browser.find_element(By.ID, "kafka-state").get_attribute("class")
        assert text(browser, "kafka-text") == "2,470 messages behind, the oldest 62 s; 105k messages a second"
        assert text(browser, "kafka-note") == ("Group unseen; 64 partitions, of which the 3 furthest behind are shown; 1 dead letter in the folder; "
                                               "12 rebalances; last error 60 min ago: broker-2.eu-west1.example:9093: Disconnected")
        rows = browser.execute_script("return [...document.querySelectorAll('#kafka-rows > tr')].map(r => [...r.cells].map(c => c.textContent).join(' '))")
        assert rows[0] == "plays 0 1,235 62 s 52.3k 123,456,789,012 123,456,790,247 0"
        assert rows[2] == "x" * 255 and rows[3] == "plays 2 – – 0 – – 0"
        assert "misses events since" in feed[3][1] and "123,456,789 were left out" in feed[3][1]
        assert "tried again in 90 s" in text(browser, "slots") and "123M" in text(browser, "slots").replace("123.5M", "123M")
        assert text(browser, "question-p99") == "1.2 s" and text(browser, "questions") == "48.3k a second"
        assert "bad" in browser.find_element(By.ID, "errors").get_attribute("class")


def pair(browser):
    return [" ".join(part.split("\n")) for part in shown(browser, "#pair > div", "e.style.visibility === 'hidden' ? '' : e.innerText")]


def test_a_pair(make_server, browser, folder):
    """Both ends draw the wire between them; a node alone draws nothing."""
    ports = free_port(), free_port()
    primary = make_server(http=f"127.0.0.1:{ports[0]}", clock=None)
    browser.get(f"http://127.0.0.1:{ports[0]}/")
    wait(lambda: text(browser, "state") == "healthy", browser)
    assert not browser.find_element(By.ID, "replicas").is_displayed()
    data = folder / "replica-data"
    run("clone", f"127.0.0.1:{primary.port}", "--data", data)
    replica = make_follower(make_server, data, f"127.0.0.1:{primary.port}", None, {"http": f"127.0.0.1:{ports[1]}"})
    own, other = f"127.0.0.1:{primary.port}", f"127.0.0.1:{replica.port}"
    wait(lambda: pair(browser) == [f"{own} primary · this node", "in step", f"{other} replica"], browser)
    browser.get(f"http://127.0.0.1:{ports[1]}/")
    wait(lambda: pair(browser) == [f"{own} primary", "in step", f"{other} replica · this node"], browser)
    primary.kill()
    wait(lambda: pair(browser)[1:2] == ["connecting"], browser)
    assert "bad" in shown(browser, "#pair .wire", "e.className")[0]


def test_too_many_wrong_passwords(browser):
    problem = {"type": "urn:unseen:problem:too-many-failed-logins", "title": "Too Many Requests", "status": 429,
               "detail": "too many failed logins from your address"}
    with told(browser, {"/v1/status": problem}):
        browser.get(browser.page)
        wait(lambda: text(browser, "login-note") == problem["detail"], browser)
        assert browser.find_element(By.ID, "password").is_displayed()


def test_a_wrong_password_is_sent_once(make_server, browser):
    port = free_port()
    server = make_server(http=f"127.0.0.1:{port}", requirepass="s3cret")
    browser.get(f"http://127.0.0.1:{port}/")
    wait(lambda: text(browser, "state") == "password needed", browser)
    assert text(browser, "login-note") == ""
    browser.find_element(By.ID, "password").send_keys("wrong")
    browser.find_element(By.CSS_SELECTOR, "#login-form button").click()
    wait(lambda: "Account or password is wrong" in text(browser, "login-note"), browser)
    assert browser.execute_script("return sessionStorage.getItem('password')") is None
    assert server.alive()


def test_users_from_another_redis(make_server, browser):
    """Nothing of it where nobody comes; else how far they are, what the mirror owes, and what both wait for."""
    port = free_port()
    server = make_server(http=f"127.0.0.1:{port}")
    browser.get(f"http://127.0.0.1:{port}/")
    wait(lambda: text(browser, "state") == "healthy", browser)
    assert not browser.find_element(By.ID, "legacy").is_displayed()
    assert not browser.find_element(By.ID, "feed").is_displayed()
    assert not browser.find_element(By.ID, "kafka").is_displayed()
    server.options.update(legacy_redis=server.folder / "nobody", legacy_mirror="yes", legacy_mirror_max="1MiB")
    server.restart()
    with server.client() as c:
        c.command("LEGACY", "NOTE", "u1", "u2", "u3", "u4")
        c.command("FORGET", "u4")
        c.command("PLAYED", "u1", "a", "b")
    wait(lambda: text(browser, "migration-state") == "Migration: waiting" and "No such file" in text(browser, "migration-text"),
         browser)
    wait(lambda: text(browser, "migration-note") == "25 %: 0 of 4 users migrated, 3 wait, 1 forgotten", browser)
    wait(lambda: text(browser, "mirror-state") == "Mirror: waiting", browser)
    wait(lambda: text(browser, "mirror-text").startswith("3 events wait (") and "of 1.0 MiB)" in text(browser, "mirror-text"),
         browser)
    wait(lambda: text(browser, "feed-mirror").startswith("mirror\n3 events, "), browser)
    assert text(browser, "state") == "healthy"
    server.advance(5 * 60 * 1000)
    wait(lambda: "the oldest for 5 min" in text(browser, "mirror-text"), browser)
    wait(lambda: "3 events, 5 min behind" in text(browser, "feed-mirror"), browser)
    with server.client() as c:
        c.command("LEGACY", "PAUSE")
        for _ in range(20):
            c.command("PLAYED", "u1", *[f"{'x' * 200}{i}" for i in range(1000)])
    wait(lambda: text(browser, "migration-state") == "Migration: paused", browser)
    wait(lambda: text(browser, "mirror-state") == "Mirror: broken" and "events were left out" in text(browser, "mirror-text"),
         browser)
    wait(lambda: text(browser, "feed-mirror").startswith("mirror\nlost"), browser)


def test_a_store_without_ring_and_months(make_server, browser):
    port = free_port()
    server = make_server(http=f"127.0.0.1:{port}", store="memory")
    with server.client() as c:
        c.command("PLAYED", "u", "a")
    browser.get(f"http://127.0.0.1:{port}/")
    wait(lambda: "Nothing of it is durable" in text(browser, "store-rows"), browser)
    assert text(browser, "state") == "healthy"
    assert not browser.find_element(By.ID, "ring").is_displayed()
    assert not browser.find_element(By.ID, "months").is_displayed()
    assert not browser.find_element(By.ID, "banner").is_displayed()
    ask(browser, "u", "a")
    wait(lambda: "a is hidden from u" in text(browser, "ask"), browser)
