package edge_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// untouched is a request body that must not be read, because its call must
// be rejected by its headers.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

func (u untouched) Close() error { return nil }

// refusedByHeaders reports whether a response is permission_denied, in the form
// of its protocol.
func refusedByHeaders(res *http.Response) bool {
	body, _ := io.ReadAll(res.Body)
	switch kind := res.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "application/grpc"):
		return res.Header.Get("Grpc-Status") == "7" || res.Trailer.Get("Grpc-Status") == "7" || bytes.Contains(body, []byte("grpc-status: 7"))
	case strings.HasPrefix(kind, "application/connect+"):
		return bytes.Contains(body, []byte("permission_denied"))
	}
	return res.StatusCode == http.StatusForbidden && bytes.Contains(body, []byte("permission_denied"))
}

// TestCallersWithoutRuleAreRejectedByHeaders: on every way into the API, a
// caller that has no rule for the procedure's verb is rejected before a byte of
// the body is read, and the rejection is counted like any other.
func TestCallersWithoutRuleAreRejectedByHeaders(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "none", "reader")
	g.begin(t)
	g.role(t, "reads", access.Rule{Effect: access.Allow, Verbs: []string{"read"}, Types: []string{"counter"}})
	g.bind(t, "token:reader", "reads")
	unary, streams, uploads := entityPath+"SendCommand", entityPath+"SendCommandStream", modulePath+"UploadModule"
	for _, tt := range []struct{ name, method, path, kind string }{
		{"Connect, proto", "POST", unary, "application/proto"},
		{"Connect, JSON", "POST", unary, "application/json"},
		{"Connect, JSON with a character set", "POST", unary, "application/json; charset=utf-8"},
		{"gRPC", "POST", unary, "application/grpc"},
		{"gRPC, JSON", "POST", unary, "application/grpc+json"},
		{"gRPC-Web", "POST", unary, "application/grpc-web+proto"},
		{"a stream of Connect", "POST", streams, "application/connect+proto"},
		{"a stream of Connect, JSON", "POST", streams, "application/connect+json"},
		{"a stream of gRPC", "POST", streams, "application/grpc"},
		{"an upload", "POST", uploads, "application/proto"},
		{"an upload by gRPC", "POST", uploads, "application/grpc"},
		{"an upload in pieces", "POST", modulePath + "UploadModuleStream", "application/grpc"},
		{"an import", "POST", "/hostd.journal.v1.JournalService/ImportJournal", "application/connect+proto"},
		{"a role", "POST", clusterPath + "PutRole", "application/json"},
		{"a plain path", "POST", "/e/counter/a/add", "application/json"},
		{"JSON in capitals", "POST", unary, "APPLICATION/JSON"},
		{"gRPC in capitals", "POST", unary, "Application/gRPC"},
		{"gRPC-Web, JSON, in capitals", "POST", unary, "application/grpc-web+JSON"},
		{"a stream of Connect in capitals", "POST", streams, "Application/Connect+proto"},
		{"a compressed body", "POST", unary, "application/json gzip"},
	} {
		for _, who := range []string{"none", "reader", ""} {
			r := httptest.NewRequest(tt.method, tt.path, untouched{t})
			r.ProtoMajor, r.ProtoMinor, r.ContentLength = 2, 0, 1<<20
			kind, _, _ := strings.Cut(tt.kind, " gzip")
			if kind != tt.kind {
				r.Header.Set("Content-Encoding", "gzip")
			}
			r.Header.Set("Content-Type", kind)
			if who != "" {
				r.Header.Set("Authorization", "Bearer "+g.tokens[who])
			}
			w := httptest.NewRecorder()
			g.server.Handler().ServeHTTP(w, r)
			if !refusedByHeaders(w.Result()) {
				t.Errorf("%s by %q: %d %v", tt.name, who, w.Code, w.Result().Header)
			}
		}
	}
	// A call that a different node forwards for its caller.
	r := httptest.NewRequest("POST", strings.TrimSuffix(leaderproxy.Path, "/")+entityPath+"DeleteEntity", untouched{t})
	r.Header.Set("Content-Type", "application/proto")
	r.Header.Set(principal.Header, principal.HeaderOf(principal.Said{Caller: &principal.Principal{Kind: principal.Token, Name: "none"}}))
	w := httptest.NewRecorder()
	g.server.ForPeers().ServeHTTP(w, r)
	if !refusedByHeaders(w.Result()) {
		t.Errorf("by another node: %d %v", w.Code, w.Result().Header)
	}
	// A message in the URL of a GET.
	r = httptest.NewRequest("GET", entityPath+"QueryEntity?connect=v1&encoding=json&message=%7Bmalformed", nil)
	r.Header.Set("Authorization", "Bearer "+g.tokens["reader"])
	w = httptest.NewRecorder()
	g.server.Handler().ServeHTTP(w, r)
	if !refusedByHeaders(w.Result()) {
		t.Errorf("a GET: %d %v", w.Code, w.Result().Header)
	}
}

// TestCallsWithoutRoleChargeNoBytes: 240 concurrent calls of 1 MB by a
// caller without any role charge nothing to the budget of waiting bytes.
func TestCallsWithoutRoleChargeNoBytes(t *testing.T) {
	registry := prometheus.NewRegistry()
	g := guard(t, edge.Options{Registerer: registry}, "root", "none")
	g.begin(t)
	body := []byte(`{"entityType":"counter","entityId":"a","command":"add","json":[` + strings.Repeat("[],", 330_000) + `[]]}`)
	var calls sync.WaitGroup
	for range 240 {
		calls.Go(func() {
			r, err := http.NewRequest("POST", g.url+entityPath+"SendCommand", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			res, err := g.as("none").Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if !refusedByHeaders(res) {
				t.Errorf("%d", res.StatusCode)
			}
			if n := gauge(t, registry, "hostd_rpc_waiting_bytes"); n != 0 {
				t.Errorf("%v bytes are charged", n)
			}
		})
	}
	calls.Wait()
}

// gauge returns the value of a metric without labels.
func gauge(t *testing.T, from *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestLargeMessagesAreChargedBeforeTheyAreDecoded: callers that may send share
// the budget of waiting bytes. The memory that their messages take after
// decoding never exceeds it, whatever the protocol, and all of it is released.
func TestLargeMessagesAreChargedBeforeTheyAreDecoded(t *testing.T) {
	registry := prometheus.NewRegistry()
	const limit = 32 << 20
	s := serve(t, edge.Options{Registerer: registry, MaxWaitingBytes: limit})
	list := strings.Repeat("[],", 60_000) + "[]"
	text := []byte(`{"entityType":"counter","entityId":"a","command":"add","json":[` + list + `]}`)
	enveloped := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
	stop := make(chan struct{})
	var watch, calls sync.WaitGroup
	watch.Go(func() {
		for {
			if n := gauge(t, registry, "hostd_rpc_waiting_bytes"); n > limit {
				t.Errorf("%v bytes are charged, %v may be", n, limit)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range 48 {
		calls.Go(func() {
			path, kind, body := entityPath+"SendCommand", "application/json", text
			switch i % 4 {
			case 1:
				kind, body = "application/grpc+json", enveloped
			case 2:
				kind, body = "application/grpc-web+json", enveloped
			case 3:
				path, body = "/e/counter/a/add", []byte("["+list+"]")
			}
			r, err := http.NewRequest("POST", s.url+path, io.MultiReader(bytes.NewReader(body))) // hides the length
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", kind)
			res, err := s.h2.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
		})
	}
	calls.Wait()
	close(stop)
	watch.Wait()
	eventually(t, "all charges to end", func() bool { return gauge(t, registry, "hostd_rpc_waiting_bytes") == 0 })

	// A message that could never be admitted is the caller's fault.
	status, answer := s.post(t, entityPath+"SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":[`+strings.Repeat("[],", 330_000)+`[]]}`)
	if status != http.StatusBadRequest {
		t.Errorf("%d %s", status, answer)
	}
	wantCode(t, answer, connect.CodeInvalidArgument)
}

// TestContentTypeCaseIsIgnored: a message that could never be admitted is
// rejected before it is decoded, whatever the case of its content type.
func TestContentTypeCaseIsIgnored(t *testing.T) {
	s := serve(t, edge.Options{MaxWaitingBytes: 8 << 20})
	list := &structpb.ListValue{}
	for range 100_000 {
		list.Values = append(list.Values, structpb.NewListValue(&structpb.ListValue{}))
	}
	request := &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "add", Payload: &entityv1.SendCommandRequest_Json{Json: structpb.NewListValue(list)}}
	binaryForm, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"entityType":"counter","entityId":"a","command":"add","json":[` + strings.Repeat("[],", 100_000) + `[]]}`)
	envelope := func(b []byte) []byte { return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...) }
	for kind, body := range map[string][]byte{
		"application/proto": binaryForm, "Application/Proto": binaryForm, "application/json": text, "APPLICATION/JSON; Charset=UTF-8": text,
		"application/grpc": envelope(binaryForm), "Application/gRPC": envelope(binaryForm), "application/GRPC+proto": envelope(binaryForm),
		"application/gRPC-Web+proto": envelope(binaryForm), "Application/grpc+JSON": envelope(text),
	} {
		r, err := http.NewRequest("POST", s.url+entityPath+"SendCommand", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", kind)
		res, err := s.h2.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if said := string(answer) + res.Header.Get("Grpc-Message") + res.Trailer.Get("Grpc-Message"); !strings.Contains(said, "the decoded message") {
			t.Errorf("%s: %d %.200s", kind, res.StatusCode, said)
		}
	}
	for _, encoding := range []string{"json", "json; charset=utf-8"} {
		given := url.Values{"connect": {"v1"}, "encoding": {encoding}, "message": {`{"entityType":"counter","entityId":"a","query":"get","json":[` + strings.Repeat("[],", 100_000) + `[]]}`}}
		w := httptest.NewRecorder()
		s.server.Handler().ServeHTTP(w, httptest.NewRequest("GET", entityPath+"QueryEntity?"+given.Encode(), nil))
		answer := w.Body.String()
		if !strings.Contains(answer, "the decoded message") {
			t.Errorf("GET with the encoding %s: %d %.200s", encoding, w.Code, answer)
		}
	}
}

// TestInvalidUTF8IsRejectedByEveryEndpoint: invalid UTF-8 is rejected as the
// caller's fault, and never becomes a name other than the one that was sent.
func TestInvalidUTF8IsRejectedByEveryEndpoint(t *testing.T) {
	s := serve(t, edge.Options{})
	envelope := func(m []byte) []byte { return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...) }
	text := func(number int, value string) []byte {
		return append([]byte{byte(number<<3 | 2), byte(len(value))}, value...)
	}
	send := func(entityType, id, command, commandID string) []byte {
		return slices.Concat(text(1, entityType), text(2, id), text(3, command), text(6, commandID))
	}
	for _, tt := range []struct {
		name, path, kind string
		body             []byte
	}{
		{"an id in JSON", "SendCommand", "application/json", []byte("{\"entityType\":\"counter\",\"entityId\":\"\xff\",\"command\":\"add\"}")},
		{"a value in JSON", "SendCommand", "application/json", []byte("{\"entityType\":\"counter\",\"entityId\":\"a\",\"command\":\"echo\",\"json\":\"\xff\"}")},
		{"an unknown member in JSON", "SendCommand", "application/json", []byte("{\"\xff\":1}")},
		{"a type", "SendCommand", "application/proto", send("\xff", "a", "add", "")},
		{"an id", "SendCommand", "application/proto", send("counter", "\xff", "add", "")},
		{"a command", "SendCommand", "application/proto", send("counter", "a", "\xff", "")},
		{"a command id", "SendCommand", "application/proto", send("counter", "a", "add", "\xff")},
		{"a page token", "ListEntities", "application/proto", slices.Concat(text(1, "counter"), text(6, "\xff"))},
		{"a cursor", "SubscribeEvents", "application/connect+proto", envelope(slices.Concat(text(1, "counter"), text(2, "\xff"), text(3, "\xff")))},
	} {
		r, err := http.NewRequest(http.MethodPost, s.url+entityPath+tt.path, bytes.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", tt.kind)
		status, answer := do(t, r)
		if !strings.Contains(answer, "invalid_argument") && !strings.Contains(answer, "grpc-status: 3") {
			t.Errorf("%s: %d %q", tt.name, status, answer)
		}
	}
	for _, m := range []*entityv1.SendCommandRequest{add("\xff", 1), {EntityType: "\xff", EntityId: "a", Command: "add"}, {EntityType: "counter", EntityId: "a", Command: "\xff"}, {EntityType: "counter", EntityId: "a", Command: "add", CommandId: "\xff"}} {
		var o wire.Outgoing
		o.EntityType, o.EntityID, o.Name, o.CommandID = m.GetEntityType(), m.GetEntityId(), m.GetCommand(), m.GetCommandId()
		r, err := http.NewRequest(http.MethodPost, s.url+entityPath+"SendCommandStream", bytes.NewReader(envelope(wire.AppendCommand(nil, 1, &o))))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/connect+proto")
		res, err := s.h2.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if !bytes.Contains(answer, []byte("invalid_argument")) {
			t.Errorf("a stream with %v: %q", m, answer)
		}
	}
}
