package hostile

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

// TestHostileRequests checks that expensive, confusing or misleading requests
// are answered correctly, and that a neighbour's command succeeds after each
// request.
func TestHostileRequests(t *testing.T) {
	node := testkit.StartNode(t, testkit.NodeOptions{})
	beside := newNeighbour(t, node)
	id := func(id string) string {
		text, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"entityType":"counter","entityId":%s,"command":"add","json":{"amount":1}}`, text)
	}
	with := func(value string) string {
		return fmt.Sprintf(`{"entityType":"counter","entityId":"a","command":"add","json":%s}`, value)
	}
	nested := func(n int) string { return with(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	var bomb bytes.Buffer
	inflated := gzip.NewWriter(&bomb)
	for range 900 {
		inflated.Write(make([]byte, 1<<20))
	}
	inflated.Close()
	for _, c := range []struct {
		name, path, body string
		header           [2]string
		want             int
		unread           bool // the server answers and closes the connection before it has read the whole body
	}{
		{name: "an honest one", body: id("a"), want: 200},
		{name: "a name that looks like a path", body: id("../../../etc/passwd"), want: 200},
		{name: "nested deeply", body: nested(500_000), want: 400},
		{name: "equal keys", body: with("{" + strings.Repeat(`"a":1,`, 150_000) + `"a":1}`), want: 400},
		{name: "a number beyond all", body: with("1e400"), want: 400},
		{name: "a number of 600 KB", body: with(strings.Repeat("9", 600_000)), want: 400},
		{name: "no UTF-8", body: with("\"\xff\""), want: 400},
		{name: "text that turns around", body: id("a\u202eb"), want: 400},
		{name: "a zero byte", body: id("a\x00b"), want: 400},
		{name: "a type that looks like a path", body: strings.Replace(id("a"), `"counter"`, `"../x"`, 1), want: 400},
		{name: "a compressed bomb", body: bomb.String(), header: [2]string{"Content-Encoding", "gzip"}, want: 501, unread: true},
		{name: "a body of 2 MiB", body: strings.Repeat(" ", 2<<20), want: 400, unread: true},
		{name: "headers of 64 KB", body: id("a"), header: [2]string{"X-Long", strings.Repeat("x", 64<<10)}, want: 431},
		{name: "a timeout of 14 digits", body: id("a"), header: [2]string{"Connect-Timeout-Ms", strings.Repeat("9", 14)}, want: 400},
		{name: "another path to the same", path: "/hostd.hop/.." + entityPath + "SendCommand", body: id("a"), want: 404},
		{name: "an empty part of a path", path: "/" + entityPath + "SendCommand", body: id("a"), want: 501},
	} {
		path := c.path
		if path == "" {
			path = entityPath + "SendCommand"
		}
		r, err := http.NewRequest(http.MethodPost, node.API()+path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if c.header[0] != "" {
			r.Header.Set(c.header[0], c.header[1])
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		res, err := client.Do(r)
		if c.unread && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
			beside.adds() // a client that is still writing may see the closed connection instead of the answer
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s: %d %.300s, want %d", c.name, res.StatusCode, text, c.want)
		}
		beside.adds()
	}
}
