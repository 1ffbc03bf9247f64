package ts

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// asked is a request that the server received.
type asked struct {
	host, procedure, cluster string
	body                     map[string]any
}

// stage simulates a cluster: it answers each request with its next act.
type stage struct {
	t    *testing.T
	mu   sync.Mutex
	acts []func(http.ResponseWriter)
	seen []asked
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := readAll(s.t, r.Body)
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+") {
		body = body[min(5, len(body)):]
	}
	a := asked{host: r.Host, procedure: filepath.Base(r.URL.Path), cluster: r.Header.Get("Hostd-Cluster")}
	if err := json.Unmarshal(body, &a.body); err != nil {
		s.t.Errorf("a request is %q: %v", body, err)
	}
	s.mu.Lock()
	s.seen = append(s.seen, a)
	if len(s.acts) == 0 {
		s.mu.Unlock()
		s.t.Errorf("the server is asked once more: %v", a)
		panic(http.ErrAbortHandler)
	}
	act := s.acts[0]
	s.acts = s.acts[1:]
	s.mu.Unlock()
	act(w)
}

// play runs the script against a server, and returns what it printed and the
// requests that the server received.
func play(t *testing.T, what string, acts ...func(http.ResponseWriter)) (map[string]any, []asked) {
	t.Helper()
	return playIn(t, compiled(t), "retries.js", what, acts...)
}

// playIn is play for a script in a directory.
func playIn(t *testing.T, dir, script, what string, acts ...func(http.ResponseWriter)) (map[string]any, []asked) {
	t.Helper()
	s := &stage{t: t, acts: acts}
	server := httptest.NewServer(s)
	defer server.Close()
	text := run(t, dir, node(t), script, what, server.URL)
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("the script printed %q: %v", text, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.acts) > 0 {
		t.Errorf("%d acts are left", len(s.acts))
	}
	return out, s.seen
}

// ageOf returns the age of the first attempt in a request; 0 if it has none.
func ageOf(t *testing.T, a asked) time.Duration {
	t.Helper()
	text, _ := a.body["firstAttemptAge"].(string)
	if text == "" {
		return 0
	}
	age, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return age
}

// cut ends the connection without an answer.
func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// fail answers with a Connect error.
func fail(status int, code string, details ...proto.Message) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		list := []any{}
		for _, d := range details {
			value, err := proto.Marshal(d)
			if err != nil {
				panic(err)
			}
			list = append(list, map[string]any{"type": string(d.ProtoReflect().Descriptor().FullName()), "value": base64.RawStdEncoding.EncodeToString(value)})
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "message": "as told", "details": list})
	}
}

func answer(body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

var done = answer(`{"json":{"balance":9007199254740993},"sequence":"2","eventCount":1}`)

// TestRetriesAreOneCommand checks that all attempts have the same id, which
// is generated before the first attempt, and that they report the age of the
// first attempt with an unknown outcome.
func TestRetriesAreOneCommand(t *testing.T) {
	out, seen := play(t, "send", fail(503, "unavailable"), cut, answer(`{"json":{"bala`), func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, done)
	if out["balance"] != "9007199254740993" || len(seen) != 5 {
		t.Fatalf("after %d attempts: %v", len(seen), out)
	}
	for i, a := range seen {
		if id := a.body["commandId"]; id == "" || id != seen[0].body["commandId"] {
			t.Errorf("attempt %d has the id %v, the first %v", i, id, seen[0].body["commandId"])
		}
		age := ageOf(t, a)
		if known := i < 2; known != (age == 0) {
			t.Errorf("attempt %d says an age of %v", i, age)
		}
	}
	out, seen = play(t, "again", done)
	if ageOf(t, seen[0]) < 5*time.Second || seen[0].body["commandId"] != "mine" {
		t.Errorf("a command of before is sent as %v: %v", seen[0].body, out)
	}
}

// TestOutcomes checks that the last answer of a node is reported as the
// outcome, unless an earlier attempt may have a different outcome.
func TestOutcomes(t *testing.T) {
	rejection := fail(400, "failed_precondition", &entityv1.Rejection{Code: "not_open", Message: "nobody has opened the account"})
	mismatch := fail(400, "failed_precondition", &entityv1.SequenceMismatch{Actual: 300})
	for _, c := range []struct {
		acts          []func(http.ResponseWriter)
		code, name    string
		unknown       bool
		rejection     any
		reason, field string
		after         float64
	}{
		{acts: []func(http.ResponseWriter){rejection}, code: "failed_precondition", name: "Rejected", rejection: "not_open"},
		{acts: []func(http.ResponseWriter){fail(503, "unavailable"), rejection}, code: "failed_precondition", name: "Rejected", rejection: "not_open"},
		{acts: []func(http.ResponseWriter){cut, rejection}, code: "unknown", name: "HostdError", unknown: true},
		{acts: []func(http.ResponseWriter){cut, mismatch}, code: "failed_precondition", name: "SequenceMismatch"},
		{acts: []func(http.ResponseWriter){fail(504, "deadline_exceeded"), fail(409, "aborted")}, code: "aborted", name: "HostdError", unknown: true},
		{acts: []func(http.ResponseWriter){fail(429, "resource_exhausted", &errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)})}, code: "resource_exhausted", name: "HostdError", after: 1500},
		{acts: []func(http.ResponseWriter){cut, fail(429, "resource_exhausted")}, code: "unknown", name: "HostdError", unknown: true},
		{acts: []func(http.ResponseWriter){fail(403, "permission_denied", &errdetails.ErrorInfo{Reason: "INTERNAL_COMMAND"})}, code: "permission_denied", name: "HostdError", reason: "INTERNAL_COMMAND"},
		{acts: []func(http.ResponseWriter){fail(400, "invalid_argument", &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "amount", Description: "is missing"}}})}, code: "invalid_argument", name: "HostdError", field: "amount"},
	} {
		out, seen := play(t, "send", c.acts...)
		field := ""
		if list, _ := out["violations"].([]any); len(list) > 0 {
			field, _ = list[0].(map[string]any)["field"].(string)
		}
		if out["code"] != c.code || out["name"] != c.name || out["unknown"] != c.unknown || out["rejection"] != c.rejection || out["reason"] != c.reason || field != c.field || out["retryAfterMs"] != c.after {
			t.Errorf("after %d attempts: %v, want %+v", len(seen), out, c)
		}
		if notOpen, _ := out["notOpen"].(bool); notOpen != (c.rejection == "not_open") {
			t.Errorf("the rejection is not told by its type: %v", out)
		}
	}
}

// envelope returns a message of a stream.
func envelope(flags byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text))), text...)
}

func event(n int) []byte {
	return envelope(0, fmt.Sprintf(`{"entityId":"a","sequence":"%d","eventType":"deposited","json":{"amount":%d},"cursor":"c%d"}`, n, 10*n, n))
}

// TestStreamsGoOn checks that a stream that was cut off continues after its
// last message, no matter how the messages were split in transit.
func TestStreamsGoOn(t *testing.T) {
	out, seen := play(t, "events", func(w http.ResponseWriter) {
		whole := append(event(1), event(2)...)
		for len(whole) > 0 {
			n := min(7, len(whole))
			_, _ = w.Write(whole[:n])
			w.(http.Flusher).Flush()
			whole = whole[n:]
		}
		_, _ = w.Write(event(3)[:20])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, func(w http.ResponseWriter) {
		_, _ = w.Write(envelope(2, `{"error":{"code":"unavailable","message":"the node stops"}}`))
	}, func(w http.ResponseWriter) {
		_, _ = w.Write(append(event(3), envelope(2, `{}`)...))
	})
	want := []any{[]any{1.0, "deposited", 10.0}, []any{2.0, "deposited", 20.0}, []any{3.0, "deposited", 30.0}}
	if !reflect.DeepEqual(out["events"], want) {
		t.Errorf("the events are %v, want %v", out["events"], want)
	}
	var cursors []any
	for _, a := range seen {
		cursors = append(cursors, a.body["cursor"])
	}
	if !slices.Equal(cursors, []any{"c0", "c2", "c2"}) {
		t.Errorf("the cursors are %v", cursors)
	}
	if out, _ := play(t, "events", func(w http.ResponseWriter) {
		_, _ = w.Write([]byte{0, 0xff, 0xff, 0xff, 0xff, '{'})
	}); out["code"] != "resource_exhausted" {
		t.Errorf("a message without bound: %v", out)
	}
	if out, _ := play(t, "events", func(w http.ResponseWriter) {
		_, _ = w.Write(envelope(2, `{"error":{"code":"not_found","message":"no such type"}}`))
	}); out["code"] != "not_found" {
		t.Errorf("a type that is not there: %v", out)
	}
}

// TestProjections checks that events are delivered in batches with the cursor
// after them. If the stream fails, the received events are applied before the
// failure ends the projection.
func TestProjections(t *testing.T) {
	stored := func(n int, more string) []byte {
		return envelope(0, fmt.Sprintf(`{"entityId":"a","sequence":"%d","eventType":"deposited","json":{"amount":1},"cursor":"c%d"%s}`, n, n, more))
	}
	lost := envelope(2, `{"error":{"code":"out_of_range","message":"the history is gone","details":[{"type":"google.rpc.ErrorInfo","value":"`+reasonDetail(t, "CURSOR_HISTORY_LOST")+`"}]}}`)
	out, seen := play(t, "projection", func(w http.ResponseWriter) {
		_, _ = w.Write(envelope(0, `{"cursor":"c0"}`)) // the start position
		_, _ = w.Write(slices.Concat(stored(1, `,"skipped":"7"`), stored(2, ""), stored(3, `,"storedType":"paid"`)))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, func(w http.ResponseWriter) { _, _ = w.Write(lost) })
	if out["code"] != "out_of_range" || out["historyLost"] != true {
		t.Errorf("it ended with %v", out)
	}
	var sequences []any
	cursor := ""
	batches, _ := out["batches"].([]any)
	for i, b := range batches {
		if i == 0 && b == "7 skipped" {
			continue
		}
		batch, _ := b.([]any)
		if len(batch) != 3 || len(batch[0].([]any)) > 2 {
			t.Fatalf("a batch is %v", b)
		}
		sequences = append(sequences, batch[0].([]any)...)
		cursor, _ = batch[1].(string)
	}
	if !slices.Equal(sequences, []any{1.0, 2.0, 3.0}) || cursor != "c3" || batches[0] != "7 skipped" || !strings.Contains(fmt.Sprint(batches), "paid") {
		t.Errorf("the batches are %v", batches)
	}
	for i, at := range []string{"", "c3"} {
		b := seen[i].body
		if b["cursor"] != at || b["fromNewest"] != true || b["upcast"] != true || b["skipTruncated"] != true || !reflect.DeepEqual(b["shards"], []any{3.0, 4.0}) {
			t.Errorf("request %d is %v", i, b)
		}
	}
	if out, _ := play(t, "projection", func(w http.ResponseWriter) {
		for n := 1; n <= 4; n++ {
			_, _ = w.Write(stored(n, ""))
		}
		w.(http.Flusher).Flush()
		_, _ = w.Write(envelope(2, `{}`))
	}); out["code"] != nil && out["code"] != "canceled" || !strings.Contains(fmt.Sprint(out["batches"]), "c4") {
		t.Errorf("a projection that its caller ends: %v", out)
	}
}

// reasonDetail returns an error detail with a reason, as Connect encodes it.
func reasonDetail(t *testing.T, reason string) string {
	t.Helper()
	value, err := proto.Marshal(&errdetails.ErrorInfo{Reason: reason, Domain: "hostd"})
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawStdEncoding.EncodeToString(value)
}

// TestOtherClusters checks that the answers of a node of another cluster are
// rejected.
func TestOtherClusters(t *testing.T) {
	of := func(cluster string, act func(http.ResponseWriter)) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Hostd-Cluster", cluster)
			act(w)
		}
	}
	out, seen := play(t, "send", of("one", fail(503, "unavailable")), of("two", done))
	if out["code"] != "failed_precondition" || out["reason"] != "OTHER_CLUSTER" || seen[1].cluster != "one" {
		t.Errorf("a node of another cluster: %v, asked %v", out, seen)
	}
}
