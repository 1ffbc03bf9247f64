package edge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// plainCall is a request under /e/ and the expected response.
type plainCall struct {
	line    string // method and path
	body    string
	headers string // name=value, separated by spaces
	status  int
	want    string // the body; for an error a part of it
	answers string // response headers
}

func (s *site) plain(t *testing.T, c plainCall) {
	t.Helper()
	method, path, _ := strings.Cut(c.line, " ")
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range strings.Fields(c.headers) {
		name, value, _ := strings.Cut(h, "=")
		req.Header.Add(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	if res.StatusCode != c.status || c.status < 300 && text != c.want || !strings.Contains(text, c.want) {
		t.Errorf("%s %s %s: %d %s, want %d %s", c.line, c.headers, c.body, res.StatusCode, text, c.status, c.want)
	}
	for _, h := range strings.Fields(c.answers) {
		name, value, _ := strings.Cut(h, "=")
		if got := res.Header.Get(name); got != value {
			t.Errorf("%s %s: the answer has %s: %q, want %q", c.line, c.headers, name, got, value)
		}
	}
	if c.status >= 400 && method != http.MethodHead && !json.Valid(body) {
		t.Errorf("%s: the failure is no JSON: %s", c.line, text)
	}
}

// TestEntitiesUnderPlainPaths sends the requests that a user types with curl,
// without a library.
func TestEntitiesUnderPlainPaths(t *testing.T) {
	s := serve(t, edge.Options{MaxMessageBytes: 4 << 10})
	s.world.Fail = map[string]error{"busy": request.ErrBusy, "broken": rpctest.ErrInternal}
	for _, c := range []plainCall{
		{"POST /e/counter/a/add", `{"amount":3}`, "Idempotency-Key=c1", 200, `{"total":3}`, `ETag="1" Content-Type=application/json Hostd-Event-Count=1 Hostd-Duplicate= Hostd-Node-Id=n1`},
		{"POST /e/counter/a/add", `{"amount":3}`, `Idempotency-Key="c1"`, 200, `{"total":3}`, `ETag="1" Hostd-Duplicate=true`},
		{"POST /e/counter/a/add", `{"amount":4}`, "Idempotency-Key=c1", 400, `"code":"invalid_argument"`, ""},
		{"POST /e/counter/a/add", `{"amount":1}`, `If-Match="1"`, 200, `{"total":4}`, `ETag="2"`},
		{"POST /e/counter/a/add", `{"amount":1}`, `If-Match="1"`, 412, `"actualSequence":"2"`, `ETag="2"`},
		{"POST /e/counter/a/add", `{"amount":1}`, `If-None-Match=*`, 412, `"actualSequence":"2"`, ""},
		{"POST /e/counter/new/add", `{"amount":1}`, `If-None-Match=*`, 200, `{"total":1}`, `ETag="1"`},
		{"POST /e/counter/a/add", `{"amount":1}`, `If-Match=2`, 400, "its sequence in quotes", ""},
		{"POST /e/counter/a/add", `{"amount":1}`, `If-Match="2" If-None-Match=*`, 400, "one of", ""},
		{"POST /e/counter/tags/add", `{"amount":1}`, `If-Match=*`, 412, `"actualSequence":"0"`, ""},
		{"POST /e/counter/tags/add", `{"amount":1}`, ``, 200, `{"total":1}`, `ETag="1"`},
		{"POST /e/counter/tags/add", `{"amount":1}`, `If-Match=W/"1"`, 200, `{"total":2}`, `ETag="2"`},
		{"POST /e/counter/tags/add", `{"amount":1}`, `If-Match=*`, 200, `{"total":3}`, `ETag="3"`},
		{"POST /e/counter/tags/add", `{"amount":1}`, `If-Match="1",W/"3","x"`, 200, `{"total":4}`, `ETag="4"`},
		{"POST /e/counter/tags/add", `{"amount":1}`, `If-Match="1" If-Match="2"`, 412, `"actualSequence":"4"`, `ETag="4"`},
		{"POST /e/counter/tags/add", `{"amount":1}`, `If-Match="x"`, 400, "its sequence in quotes", ""},
		{"POST /e/counter/a/add", `{"amount":1}`, `Content-Encoding=gzip`, 400, "gzip", ""},
		{"POST /e/counter/a/add?amount=1", ``, ``, 400, "has no parameters", ""},
		{"POST /e/counter/a/echo", ``, ``, 200, `null`, ""},
		{"POST /e/counter/a/echo", `{"n":9007199254740993}`, ``, 200, `{"n":9007199254740993}`, ""},
		{"POST /e/counter/a/echo", `{"a":`, ``, 400, `"code":"invalid_argument"`, ""},
		{"POST /e/counter/a/echo", `"` + strings.Repeat("x", 5<<10) + `"`, ``, 400, "longer than 4096 bytes", ""},
		{"POST /e/blob/b/set", "\x01\x02", ``, 200, "\x01\x02", `Content-Type=application/octet-stream X-Content-Type-Options=nosniff`},
		{"POST /e/blob/b/set", "", ``, 204, "", `ETag="2"`},
		{"POST /e/counter/a/reject", ``, ``, 422, `{"code":"insufficient_funds","message":"the balance is too low"}`, ""},
		{"POST /e/counter/a/busy", ``, ``, 429, `"code":"resource_exhausted"`, "Retry-After=1"},
		{"POST /e/counter/a/fault", ``, ``, 500, `"code":"internal"`, ""},
		{"POST /e/counter/a/broken", ``, ``, 500, `{"code":"internal","message":"internal error"}`, ""},
		{"POST /e/countr/a/add", ``, ``, 404, `did you mean \"counter\"?`, ""},
		{"POST /e/counter/a/nothing", ``, ``, 404, `"code":"not_found"`, ""},
		{"GET /e/counter/a/q/total", ``, ``, 200, `{"total":4}`, `ETag="2"`},
		{"GET /e/counter/a/q/total?consistency=stale", ``, ``, 200, `{"total":4}`, ""},
		{"GET /e/counter/a/q/total?consistency=any", ``, ``, 400, "linearizable or stale", ""},
		{"GET /e/counter/a/q/total?from=1", ``, ``, 400, "unknown parameter", ""},
		{"GET /e/counter/a/q/echo?payload=%7B%22a%22%3A1%7D", ``, ``, 200, `{"a":1}`, ""},
		{"POST /e/counter/a/q/echo", `{"a":2}`, ``, 200, `{"a":2}`, ""},
		{"GET /e/counter/a/q/nothing", ``, ``, 404, `"code":"not_found"`, ""},
		{"POST /e/blob/new/q/echo", ``, ``, 204, ``, `ETag="0"`}, // the API answers with an empty message
		{"HEAD /e/counter/a/q/total", ``, ``, 200, ``, `ETag="2"`},
		{"GET /e/counter/a/add", ``, ``, 405, "the path takes POST", "Allow=POST"},
		{"DELETE /e/counter/a", ``, ``, 405, "the path takes GET", ""},
		{"POST /e/counter/a", ``, ``, 405, "the path takes GET", ""},
		{"POST /e/counter/a%2Fb%20c/add", `{"amount":5}`, ``, 200, `{"total":5}`, ""},
		{"GET /e/counter/a%2Fb%20c/q/total", ``, ``, 200, `{"total":5}`, ""},
		{"POST /e/counter/%ff/add", `{"amount":1}`, ``, 400, "the path is not UTF-8", ""},
		{"POST /e/counter/a/%ff", `{"amount":1}`, ``, 400, "the path is not UTF-8", ""},
		{"POST /e/%c3%28/a/add", `{"amount":1}`, ``, 400, "the path is not UTF-8", ""},
		{"GET /e/counter/%ff", ``, ``, 400, "the path is not UTF-8", ""},
		{"GET /e/counter/a/q/%ed%a0%80", ``, ``, 400, "the path is not UTF-8", ""},
		{"GET /e/counter/a/q/echo?payload=%ff", ``, ``, 400, "is not UTF-8", ""},
		{"GET /e/counter/events?follow=false&tag=%ff", ``, `Accept=text/event-stream`, 400, "is not UTF-8", ""},
		{"GET /e/counter/events?%ff=1", ``, `Accept=text/event-stream`, 400, "is not UTF-8", ""},
		{"GET /e/counter/events", ``, "Accept=text/event-stream Last-Event-ID=\xff", 400, "is not UTF-8", ""},
		{"POST /e/counter/a/add", `{"amount":1}`, "Idempotency-Key=\xff", 400, "is not UTF-8", ""},
		{"POST /e/counter//add", `{"amount":5}`, ``, 404, "the path must be", ""},
		{"POST /e/counter/%2e%2e/add", `{"amount":5}`, ``, 404, "use the API for the ids", ""},
		{"GET /e/counter", ``, ``, 404, "the path must be", ""},
		{"GET /e/counter/a/b/c/d", ``, ``, 404, "the path must be", ""},
		{"POST /e/counter/a/add", `{"amount":1}`, "Idempotency-Key=", 400, "is empty", ""},
		{"POST /e/counter/a/add", `{"amount":1}`, "Hostd-First-Attempt-Age=soon", 400, "1500ms", ""},
	} {
		s.plain(t, c)
	}
	if got := s.world.Total("a"); got != 4 {
		t.Errorf("the total is %d", got)
	}
}

// TestPlainPathsAreAuthenticated: a call on a plain path is authenticated like any
// other, before its body is read.
func TestPlainPathsAreAuthenticated(t *testing.T) {
	token := authn.NewToken()
	file := filepath.Join(t.TempDir(), "tokens")
	line, err := authn.TokenLine("app", token, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := authn.New(authn.Options{TokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, edge.Options{Auth: auth})
	s.plain(t, plainCall{"POST /e/counter/a/add", `{"amount":1}`, "", 401, `"code":"unauthenticated"`, ""})
	s.plain(t, plainCall{"GET /e/counter/a/q/total", ``, "", 401, `"code":"unauthenticated"`, ""})
	s.plain(t, plainCall{"GET /e/counter/events", ``, "Accept=text/event-stream", 401, `"code":"unauthenticated"`, ""})

	// The body never arrives.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	body, never := io.Pipe()
	defer never.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/e/counter/a/add", body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", res.StatusCode)
	}

	req, err = http.NewRequest(http.MethodPost, s.url+"/e/counter/a/add", strings.NewReader(`{"amount":1}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if res, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("status %d", res.StatusCode)
	}
}

// eventStream reads the events of a type as a browser does.
type eventStream struct {
	res   *http.Response
	lines *bufio.Scanner
}

func (s *site) eventStream(ctx context.Context, t *testing.T, path, last string) *eventStream {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("status %d, content type %q", res.StatusCode, kind)
	}
	return &eventStream{res, bufio.NewScanner(res.Body)}
}

// next returns the next event; ok is false at the end of the stream.
func (e *eventStream) next(t *testing.T) (id, text string, ok bool) {
	t.Helper()
	for e.lines.Scan() {
		name, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			text = value
		case "":
			if text != "" {
				return id, text, true
			}
		}
	}
	return "", "", false
}

// TestBatchesContinueWhereTheyEnd: a batch of CloudEvents that is requested
// with the cursor of the previous batch begins with the next event.
func TestBatchesContinueWhereTheyEnd(t *testing.T) {
	s := serve(t, edge.Options{})
	const events = 7
	for i := range events {
		s.plain(t, plainCall{fmt.Sprintf("POST /e/counter/e%d/add", i), `{"amount":1}`, "", 200, `{"total":1}`, ""})
	}
	seen := map[string]bool{}
	for cursor, pages := "", 0; ; pages++ {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/e/counter/events?limit=3&cursor="+cursor, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/cloudevents-batch+json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var page []struct{ Source, ID string }
		err = json.NewDecoder(res.Body).Decode(&page)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || len(page) > 3 {
			t.Fatalf("status %d, %d events: %v", res.StatusCode, len(page), err)
		}
		if len(page) == 0 {
			if pages != 3 {
				t.Errorf("%d lists have events, want 3", pages)
			}
			break
		}
		for _, e := range page {
			seen[e.Source+"#"+e.ID] = true
		}
		if cursor = res.Header.Get("Hostd-Cursor"); cursor == "" {
			t.Fatal("no cursor")
		}
	}
	if len(seen) != events {
		t.Errorf("%d of %d events: %v", len(seen), events, seen)
	}
}

func TestEventsForBrowsers(t *testing.T) {
	s := serve(t, edge.Options{})
	add := func(amount int) {
		s.plain(t, plainCall{"POST /e/counter/a/add", fmt.Sprintf(`{"amount":%d}`, amount), "", 200, fmt.Sprintf(`{"total":%d}`, s.world.Total("a")+int64(amount)), ""})
	}
	add(1)
	add(2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	past := s.eventStream(ctx, t, "/e/counter/events?follow=false", "")
	var cursors []string
	for n := 1; ; n++ {
		id, text, ok := past.next(t)
		if !ok {
			break
		}
		var e struct {
			EntityID, Sequence, Type string
			JSON                     json.RawMessage
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		if e.EntityID != "a" || e.Sequence != fmt.Sprint(n) || e.Type == "" || e.JSON == nil {
			t.Errorf("event %d: %s", n, text)
		}
		cursors = append(cursors, id)
	}
	if len(cursors) != 2 {
		t.Fatalf("%d events", len(cursors))
	}
	// A browser reconnects with the last id that it has seen.
	live := s.eventStream(ctx, t, "/e/counter/events", cursors[0])
	if id, text, ok := live.next(t); !ok || id != cursors[1] || !strings.Contains(text, `"sequence":"2"`) {
		t.Errorf("%s %s %v", id, text, ok)
	}
	add(3)
	if _, text, ok := live.next(t); !ok || !strings.Contains(text, `"sequence":"3"`) {
		t.Errorf("%s %v", text, ok)
	}
	for path, status := range map[string]int{
		"/e/countr/events":              404,
		"/e/counter/events?cursor=none": 400,
		"/e/counter/events?follow=may":  400,
		"/e/counter/events?since=1":     400,
		"/e/counter/events?shards=a":    400,
		"/e/counter/events?shards=1,":   400,
		"/e/counter/events?shards=0":    400,
		"/e/counter/events?shards=1,1":  400,
		"/e/counter/events?shards=9999": 400,
	} {
		s.plain(t, plainCall{"GET " + path, "", "Accept=text/html,text/event-stream;q=0.5", status, `"code":`, ""})
	}
}

// TestEventsOfShards: a stream of some shards sends only the events of these
// shards, and its cursor is short however many shards the cluster has.
// Streams that together cover all shards send each event once.
func TestEventsOfShards(t *testing.T) {
	s := serve(t, edge.Options{})
	const entities = 40
	for i := range entities {
		s.plain(t, plainCall{fmt.Sprintf("POST /e/counter/of-shards-%d/add", i), `{"amount":1}`, "", 200, `{"total":1}`, ""})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := map[string]int{}
	for shard := uint32(1); shard <= rpctest.Shards; shard += 2 {
		path := fmt.Sprintf("/e/counter/events?follow=false&shards=%d", shard)
		if shard < rpctest.Shards {
			path += fmt.Sprintf(",%d", shard+1)
		}
		last, after := "", 0
		for stream := s.eventStream(ctx, t, path, ""); ; after++ {
			id, text, ok := stream.next(t)
			if !ok {
				break
			}
			var e struct{ EntityID string }
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				t.Fatal(err)
			}
			of := uint32(sharding.ShardOf(sharding.EntityID{Type: rpctest.Counter, ID: e.EntityID}, rpctest.Shards))
			if of != shard && of != shard+1 {
				t.Errorf("of shard %d and the next: %s, of %d", shard, e.EntityID, of)
			}
			if seen[e.EntityID]++; last == "" {
				last = id
			}
			if len(id) >= 100 {
				t.Errorf("a cursor of two shards has %d bytes", len(id))
			}
		}
		if last == "" {
			continue
		}
		rest := 0
		for stream := s.eventStream(ctx, t, path, last); ; rest++ {
			if _, _, ok := stream.next(t); !ok {
				break
			}
		}
		if rest != after-1 {
			t.Errorf("%d events come after the first of %d", rest, after)
		}
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", id, times)
		}
	}
	if len(seen) != entities {
		t.Errorf("%d events of %d", len(seen), entities)
	}
}

// TestMalformedBodiesAreTheCallersFault: malformed chunked encoding and a
// truncated body are answered with invalid_argument.
func TestMalformedBodiesAreTheCallersFault(t *testing.T) {
	s := serve(t, edge.Options{})
	for _, path := range []string{"/e/counter/a/add", entityPath + "SendCommand"} {
		for _, body := range []string{"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"aXX\r\n0\r\n\r\n"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+body); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
			if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "invalid_argument") {
				t.Errorf("%s with %q: %d %s", path, body, res.StatusCode, text)
			}
			conn.Close()
		}
	}
}

// TestUncleanPathsAreNotRedirected: a path that is not in clean form is
// rejected and not redirected. A redirect would escape an id a second time,
// so that the caller would reach a different entity.
func TestUncleanPathsAreNotRedirected(t *testing.T) {
	s := serve(t, edge.Options{})
	for _, path := range []string{"//e/counter/a%2Fb/add", "/x/../e/counter/a%2Fb/add", "/./e/counter/a/add", "//hostd.entity.v1.EntityService/SendCommand", "/livez/../e/counter/a"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(`{"amount":1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode < http.StatusBadRequest || res.Header.Get("Location") != "" {
			t.Errorf("%s: %s, to %q", path, res.Status, res.Header.Get("Location"))
		}
	}
}
