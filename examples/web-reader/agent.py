"""Reads a page of a host that its profile allows. Of any other it says why not, and what a person can do about it."""

import urllib.error
import urllib.request


def handler(request):
    url = request.get("url", "http://example.com/")
    try:
        with urllib.request.urlopen(url, timeout=20) as page:
            text = page.read(100_000).decode(errors="replace")
    except urllib.error.HTTPError as error:
        # What the proxy answers, not the server, has these headers.
        reason = error.headers.get("X-Holdfast-Egress")
        if reason is None:
            raise
        return {"url": url, "denied": reason, "to allow": error.headers.get("X-Holdfast-Allow")}
    except urllib.error.URLError as error:
        # HTTPS: the proxy's reason is all that a client sees of its answer.
        return {"url": url, "denied": str(error.reason)}
    return {"url": url, "letters": len(text), "begins": text[:80]}
