package plainhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// TestCloudEventsAreValid decodes events with the SDK of CloudEvents.
func TestCloudEventsAreValid(t *testing.T) {
	at := time.Date(2026, 11, 28, 9, 30, 0, 5_000_000, time.UTC)
	form := cloudForm{"c1", "order"}
	for _, c := range []struct {
		name       string
		m          *entityv1.SubscribeEventsResponse
		isJSON     bool
		want       map[string]string
		data       string
		extensions map[string]string
	}{
		{"JSON", &entityv1.SubscribeEventsResponse{
			EntityId: "a", Sequence: 7, EventType: "placed", CommandId: "k1", ModuleDigest: "abcd", Tags: []string{"vip", "50%,off"},
			Payload:    &entityv1.SubscribeEventsResponse_Data{Data: []byte(`{"n":9007199254740993}`)},
			StoredType: "placed.v1", Skipped: 3, Principal: &entityv1.Principal{Kind: "token", Name: "ops"},
		}, true, map[string]string{"source": "hostd://c1/order/a", "id": "7", "type": "order.placed", "subject": "a", "content": "application/json"},
			`{"n":9007199254740993}`, map[string]string{
				"sequence": "00000000000000000007", "partitionkey": "a", "commandid": "k1", "moduledigest": "abcd", "tags": "vip,50%25%2Coff",
				"storedtype": "placed.v1", "skipped": "3", "authtype": "api_key", "authid": "token:ops",
			}},
		{"bytes, and text that attributes must not contain", &entityv1.SubscribeEventsResponse{
			EntityId: "a/b\ufdd0 é", Sequence: 1, EventType: "x\ny", CommandId: "k\x01", Principal: &entityv1.Principal{Kind: "anonymous"},
			Payload: &entityv1.SubscribeEventsResponse_Data{Data: []byte("\x00\xff")},
		}, false, map[string]string{"source": "hostd://c1/order/a%2Fb%EF%B7%90%20%C3%A9", "id": "1", "type": "order.x%0Ay", "subject": "a/b%EF%B7%90 é", "content": "application/octet-stream"},
			"\x00\xff", map[string]string{"commandid": "k%01", "authtype": "unauthenticated", "sequence": "00000000000000000001", "partitionkey": "a/b%EF%B7%90 é"}},
		{"no data", &entityv1.SubscribeEventsResponse{EntityId: "a", Sequence: 2, EventType: "hostd.deleted"}, true,
			map[string]string{"source": "hostd://c1/order/a", "id": "2", "type": "order.hostd.deleted", "subject": "a", "content": ""}, "",
			map[string]string{"sequence": "00000000000000000002", "partitionkey": "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.m.RecordedAt = timestamppb.New(at)
			text, err := form.encode(c.m, c.isJSON)
			if err != nil {
				t.Fatal(err)
			}
			var e cloudevents.Event
			if err := json.Unmarshal(text, &e); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if err := e.Validate(); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			for name, got := range map[string]string{"source": e.Source(), "id": e.ID(), "type": e.Type(), "subject": e.Subject(), "content": e.DataContentType()} {
				if got != c.want[name] {
					t.Errorf("%s: %q, want %q", name, got, c.want[name])
				}
			}
			if string(e.Data()) != c.data || !e.Time().Equal(at) || e.SpecVersion() != "1.0" {
				t.Errorf("data %q at %v, version %s", e.Data(), e.Time(), e.SpecVersion())
			}
			if got := fmt.Sprint(e.Extensions()); got != fmt.Sprint(c.extensions) {
				t.Errorf("extensions %v, want %v", got, c.extensions)
			}
		})
	}
}

// subscribed is an API whose SubscribeEvents sends n events, and then the end if it is
// not empty.
func subscribed(t *testing.T, n int, size int, end string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 1; i <= n; i++ {
			m, err := proto.Marshal(&entityv1.SubscribeEventsResponse{
				EntityId: "a", Sequence: uint64(i), EventType: "added", Cursor: fmt.Sprintf("at-%d", i), RecordedAt: timestamppb.New(time.Unix(1, 0)),
				Payload: &entityv1.SubscribeEventsResponse_Data{Data: []byte(`"` + strings.Repeat("x", size) + `"`)},
			})
			if err != nil {
				t.Error(err)
			}
			if _, err := w.Write(envelope(0, m)); err != nil {
				return
			}
		}
		if end != "" {
			_, _ = w.Write(envelope(flagEnd, []byte(end)))
		}
	}
}

// TestBatchesOfCloudEventsAreBounded reads batches: they end when they are full,
// and say where to continue.
func TestBatchesOfCloudEventsAreBounded(t *testing.T) {
	for _, c := range []struct {
		name   string
		query  string
		api    http.HandlerFunc
		status int
		events int
		cursor string
		says   string
	}{
		{"to the newest event", "", subscribed(t, 3, 1, `{}`), 200, 3, "at-3", ""},
		{"full", "?limit=2", subscribed(t, 3, 1, `{}`), 200, 2, "at-2", ""},
		{"full by default", "", subscribed(t, 300, 1, `{}`), 200, defaultBatch, "at-100", ""},
		{"full of bytes", "?limit=1000", subscribed(t, 300, 100_000, `{}`), 200, 11, "at-11", ""},
		{"no further events", "?cursor=at-9", subscribed(t, 0, 0, `{}`), 200, 0, "at-9", ""},
		{"an error after events", "", subscribed(t, 2, 1, `{"error":{"code":"unavailable","message":"the node stops"}}`), 200, 2, "at-2", ""},
		{"an error at once", "", subscribed(t, 0, 1, `{"error":{"code":"not_found","message":"no such type"}}`), 404, 0, "", "no such type"},
		{"no end", "", subscribed(t, 0, 1, ""), 503, 0, "", "repeat the request"},
		{"too many", "?limit=1001", nil, 400, 0, "", "from 1 to 1000"},
		{"a stream", "?follow=true", nil, 400, 0, "", "cannot follow"},
		{"a parameter of streams", "?format=cloudevents", nil, 400, 0, "", "unknown parameter"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := Wrap(c.api, Options{Types: jsonCluster(4), Entities: jsonCluster(4)})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/e/counter/events"+c.query, nil)
			r.Header.Set("Accept", "application/cloudevents-batch+json, application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || w.Header().Get("Hostd-Cursor") != c.cursor {
				t.Fatalf("%d %.200s, cursor %q", w.Code, w.Body, w.Header().Get("Hostd-Cursor"))
			}
			if c.status != 200 {
				return
			}
			var events []cloudevents.Event
			if err := json.Unmarshal(w.Body.Bytes(), &events); err != nil || len(events) != c.events || w.Header().Get("Content-Type") != cloudBatchType {
				t.Errorf("%d events, want %d: %v, %s", len(events), c.events, err, w.Header().Get("Content-Type"))
			}
			for i, e := range events {
				if want := fmt.Sprint(i + 1); e.ID() != want {
					t.Errorf("event %s, want %s", e.ID(), want)
				}
			}
		})
	}
}

// TestAcceptSelectsTheFormOfEvents: the response has the first form in
// Accept that the server supports, and a browser's EventSource selects
// CloudEvents by a parameter.
func TestAcceptSelectsTheFormOfEvents(t *testing.T) {
	h := Wrap(subscribed(t, 1, 1, `{}`), Options{Types: jsonCluster(4), Entities: jsonCluster(4)})
	for _, c := range []struct{ accept, query, kind, has string }{
		{"text/event-stream", "", "text/event-stream", `data: {"entityId"`},
		{"text/event-stream", "?format=cloudevents", "text/event-stream", `data: {"specversion":"1.0"`},
		{"application/cloudevents+json", "", "text/event-stream", `data: {"specversion":"1.0"`},
		{"text/event-stream, Application/CloudEvents+JSON;q=0.9", "", "text/event-stream", `data: {"specversion":"1.0"`},
		{"application/cloudevents-batch+json, text/event-stream", "", cloudBatchType, `[{"specversion":"1.0"`},
		{"text/event-stream, application/cloudevents-batch+json", "", "text/event-stream", `data: {"entityId"`},
		{"text/event-stream", "?format=avro", "application/json", `format must be cloudevents`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/e/counter/events"+c.query, nil)
		r.Header.Set("Accept", c.accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body, err := io.ReadAll(w.Body)
		if err != nil || w.Header().Get("Content-Type") != c.kind || !strings.Contains(string(body), c.has) {
			t.Errorf("%s %s: %s, %s", c.accept, c.query, w.Header().Get("Content-Type"), body)
		}
	}
}

// budget counts the charges of a node.
type budget struct {
	taken, open int64
	err         error
}

func (b *budget) Take(_ context.Context, n int64) error {
	if b.err == nil {
		b.taken, b.open = b.taken+n, b.open+n
	}
	return b.err
}

func (b *budget) Give(_ context.Context, n int64) { b.open -= n }

// TestBatchesAreChargedAfterTheCallIsAdmitted: a call that the API rejects, for
// example because nobody knows its caller, is charged nothing. A call that is
// admitted is charged from its first event until it is answered.
func TestBatchesAreChargedAfterTheCallIsAdmitted(t *testing.T) {
	refused := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"unauthenticated","message":"no token"}`)
	}
	full := errors.New("the node is full")
	for _, c := range []struct {
		name    string
		api     http.HandlerFunc
		full    error
		status  int
		charges bool
	}{
		{"rejected", refused, nil, 401, false},
		{"rejected while there is no room", refused, full, 401, false},
		{"admitted", subscribed(t, 3, 1, `{}`), nil, 200, true},
		{"admitted without events", subscribed(t, 0, 1, `{}`), nil, 200, false},
		{"admitted while there is no room", subscribed(t, 3, 1, `{}`), full, 429, false},
	} {
		b := &budget{err: c.full}
		h := Wrap(c.api, Options{Types: jsonCluster(4), Entities: jsonCluster(4), Budget: b})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/e/counter/events", nil)
		r.Header.Set("Accept", cloudBatchType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || (b.taken > 0) != c.charges || b.open != 0 {
			t.Errorf("%s: %d %s, charged %d, of which %d were not returned", c.name, w.Code, w.Body, b.taken, b.open)
		}
		if told := w.Header().Get("Retry-After") != ""; told != (c.status == 429) {
			t.Errorf("%s: another attempt is named: %v", c.name, told)
		}
	}
}
