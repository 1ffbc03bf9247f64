package plainhttp

import (
	"bufio"
	"context"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hostd/hostd/api/cursor"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/request"
)

// envelope encodes a stream message as the API writes it.
func envelope(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

// serve serves the response of an API to a SubscribeEvents.
func serve(t *testing.T, api http.HandlerFunc) *http.Response {
	t.Helper()
	s := httptest.NewServer(Wrap(api, Options{
		Types: jsonCluster(4), Entities: jsonCluster(4), KeepAlive: time.Millisecond,
	}))
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/e/counter/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// TestEventStreamSendsKeepAlivesAndErrors: messages are sent whole, however
// they are split; an idle stream sends comments; and a stream that fails later
// sends the error.
func TestEventStreamSendsKeepAlivesAndErrors(t *testing.T) {
	heard := make(chan struct{})
	res := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		m, err := proto.Marshal(&entityv1.SubscribeEventsResponse{
			EntityId: "a", Sequence: 7, EventType: "added", Cursor: "here", Payload: &entityv1.SubscribeEventsResponse_Data{Data: []byte(`{"n":1}`)},
		})
		if err != nil {
			t.Error(err)
		}
		for _, b := range envelope(0, m) {
			_, _ = w.Write([]byte{b})
		}
		w.(http.Flusher).Flush()
		<-heard
		_, _ = w.Write(envelope(flagEnd, []byte(`{"error":{"code":"unavailable","message":"the node stops"}}`)))
	})
	lines := bufio.NewScanner(res.Body)
	var told []string
	for alive := false; lines.Scan(); {
		switch text := lines.Text(); {
		case text == ":" && !alive:
			alive = true
			close(heard)
		case text != ":" && text != "":
			told = append(told, text)
		}
	}
	if len(told) != 4 || told[0] != "id: here" || !strings.Contains(told[1], `"sequence":"7"`) || !strings.Contains(told[1], `"json":{"n":1}`) ||
		told[2] != "event: failure" || told[3] != `data: {"code":"unavailable","message":"the node stops"}` {
		t.Errorf("told %q", told)
	}
}

// TestEventStreamErrorHasHTTPStatus: an error before any event has its HTTP
// status, so that a browser does not reconnect forever.
func TestEventStreamErrorHasHTTPStatus(t *testing.T) {
	for code, status := range map[string]int{"not_found": 404, "permission_denied": 403, "resource_exhausted": 429, "unheard_of": 500} {
		res := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(envelope(flagEnd, []byte(`{"error":{"code":"`+code+`","message":"no"}}`)))
		})
		if res.StatusCode != status {
			t.Errorf("%s: status %d, want %d", code, res.StatusCode, status)
		}
		if told := res.Header.Get("Retry-After") != ""; told != (status == 429) {
			t.Errorf("%s: another try is named: %v", code, told)
		}
	}
}

// TestIdleEventStreamSendsHeadersAtOnce: a stream that flushes its headers and has no
// events yet sends the headers, and comments that keep the connection alive.
func TestIdleEventStreamSendsHeadersAtOnce(t *testing.T) {
	end := make(chan struct{})
	res := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	defer close(end)
	if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Errorf("%d, %s", res.StatusCode, kind)
	}
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); line != ":\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// TestStateIsSentOnlyIfTagDiffers: a state is sent unless one of the
// caller's tags, which may be weak and may be a list, matches its sequence.
func TestStateIsSentOnlyIfTagDiffers(t *testing.T) {
	s := httptest.NewServer(Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"json":{"n":1},"sequence":"4"}`))
	}), Options{Types: jsonCluster(4)}))
	t.Cleanup(s.Close)
	for _, tt := range []struct {
		name, value string
		status      int
	}{
		{"If-None-Match", `"4"`, 304},
		{"If-None-Match", `W/"4"`, 304},
		{"If-None-Match", `"1", W/"4"`, 304},
		{"If-None-Match", `*`, 304},
		{"If-None-Match", `"1", "x"`, 200},
		{"If-None-Match", `4`, 400},
		{"If-None-Match", `*, "4"`, 400},
		{"If-Match", `"4"`, 200},
		{"If-Match", `"1",W/"4"`, 200},
		{"If-Match", `*`, 200},
		{"If-Match", `"1"`, 412},
		{"If-Match", strings.Repeat(`"1",`, maxTags) + `"4"`, 400},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/e/counter/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(tt.name, tt.value)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != tt.status || tt.status != 400 && res.Header.Get("ETag") != `"4"` {
			t.Errorf("%s: %s: %d, %s", tt.name, tt.value, res.StatusCode, res.Header.Get("ETag"))
		}
	}
}

// jsonCluster is a cluster with this number of shards, whose types have JSON
// payloads.
type jsonCluster uint32

func (jsonCluster) Encoding(context.Context, string) (request.Encoding, error) {
	return request.JSON, nil
}
func (c jsonCluster) Shards() uint32 { return uint32(c) }
func (jsonCluster) Cluster() string  { return "c1" }

// TestEventStreamWithTooLargeCursorIsRejected: a stream whose cursor might not
// fit into a header is rejected before it begins, and the error says what to
// do. A browser can continue every stream that is admitted, whatever its
// positions become.
func TestEventStreamWithTooLargeCursorIsRejected(t *testing.T) {
	asked := 0
	h := Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(envelope(flagEnd, []byte(`{}`)))
	}), Options{Types: jsonCluster(2000), Entities: jsonCluster(2000)})
	some := "1"
	for n := 2; n <= maxEventShards; n++ {
		some += "," + strconv.Itoa(n)
	}
	for _, c := range []struct {
		query string
		ok    bool
	}{{"", false}, {"?follow=false", true}, {"?shards=" + some, true}, {"?shards=" + some + ",501", false}, {"?shards=7", true}} {
		before := asked
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/e/counter/events"+c.query, nil)
		r.Header.Set("Accept", "text/event-stream")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if ok := w.Code == http.StatusOK && asked == before+1; ok != c.ok {
			t.Errorf("%.30s: %d %s", c.query, w.Code, w.Body)
		}
		if !c.ok && (w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "shards=1,2")) {
			t.Errorf("%.30s is refused with %d %s", c.query, w.Code, w.Body)
		}
	}
	at := cursor.Cursor{Mark: 1, Shards: cursor.MaxShards}
	for shard := range uint32(maxEventShards) {
		at.Places = append(at.Places, cursor.Place{Shard: shard + 1, Position: cursor.Position{Index: 1<<35 - 1, Ordinal: 127, Events: 127, History: 1 << 31}})
	}
	if text := at.Text(); len(text) > 8<<10 {
		t.Errorf("a cursor of %d shards has %d bytes", maxEventShards, len(text))
	}
}
