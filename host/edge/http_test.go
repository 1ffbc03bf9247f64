package edge_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// TestSendOverPlainHTTP fixes the JSON that callers without a library see.
func TestSendOverPlainHTTP(t *testing.T) {
	s := serve(t, edge.Options{})
	for _, step := range []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"json", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":3},"commandId":"c1"}`,
			200, `{"json":{"total":3},"sequence":"1","eventCount":1,"nodeId":"n1"}`},
		{"duplicate", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":3},"commandId":"c1"}`,
			200, `{"json":{"total":3},"sequence":"1","eventCount":1,"duplicate":true,"nodeId":"n1"}`},
		{"data", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","data":"eyJhbW91bnQiOjJ9"}`,
			200, `{"data":"` + b64(`{"total":5}`) + `","sequence":"2","eventCount":1,"nodeId":"n1"}`},
		{"expected sequence", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1},"expectedSequence":"2"}`,
			200, `{"json":{"total":6},"sequence":"3","eventCount":1,"nodeId":"n1"}`},
		{"expected sequence as a number", "SendCommand", `{"entityType":"counter","entityId":"new","command":"add","json":{"amount":1},"expectedSequence":0}`,
			200, `{"json":{"total":1},"sequence":"1","eventCount":1,"nodeId":"n1"}`},
		{"bytes type", "SendCommand", `{"entityType":"blob","entityId":"b","command":"set","data":"AQID"}`,
			200, `{"data":"AQID","sequence":"1","eventCount":1,"nodeId":"n1"}`},
		{"bytes type without payload", "SendCommand", `{"entityType":"blob","entityId":"b","command":"set"}`,
			200, `{"sequence":"2","eventCount":1,"nodeId":"n1"}`},
		{"no payload is null", "SendCommand", `{"entityType":"counter","entityId":"a","command":"echo"}`,
			200, `{"json":null,"nodeId":"n1"}`},
		{"keys in order, numbers as they are meant", "SendCommand", `{"entityType":"counter","entityId":"a","command":"echo","json":{"b":[1.0,2.5,-0,"9007199254740993"],"a":{"z":null,"y":true}}}`,
			200, `{"json":{"a":{"y":true,"z":null},"b":[1,2.5,0,"9007199254740993"]},"nodeId":"n1"}`},
		{"query", "QueryEntity", `{"entityType":"counter","entityId":"a","query":"total"}`,
			200, `{"json":{"total":6},"sequence":"3"}`},
		{"stale query with data", "QueryEntity", `{"entityType":"counter","entityId":"a","query":"total","data":"","consistency":"STALE"}`,
			200, `{"data":"` + b64(`{"total":6}`) + `","sequence":"3"}`},
		{"query of nothing", "QueryEntity", `{"entityType":"counter","entityId":"none","query":"total","consistency":"LINEARIZABLE"}`,
			200, `{"json":{"total":0}}`},
		{"get entity", "GetEntity", `{"entityType":"counter","entityId":"a"}`,
			200, `{"status":"active","sequence":"3","shardId":2,"nodeId":"n1","moduleDigest":"` + rpctest.ModuleDigest.String() + `","resident":true}`},
		{"unknown members are refused", "QueryEntity", `{"entityTyp":"counter","entityId":"a","query":"total"}`,
			400, `{"code":"invalid_argument","message":"unmarshal message: QueryEntityRequest: unknown member \"entityTyp\", did you mean \"entityType\"?"}`},
		{"an unknown type is refused", "QueryEntity", `{"entityType":"countr","entityId":"a","query":"total"}`,
			404, `{"code":"not_found","message":"no module is active for this entity type; push one with 'hostd module push FILE.wasm'; did you mean \"counter\"?"}`},
	} {
		status, body := s.post(t, entityPath+step.path, step.body)
		if status != step.status {
			t.Errorf("%s: status %d: %s", step.name, status, body)
			continue
		}
		wantJSON(t, body, step.want)
	}
	if got := s.world.Commands(counter("a")); strings.Join(got, " ") != `{"amount":3} {"amount":2} {"amount":1}` {
		t.Errorf("the module got %q", got)
	}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// TestErrorsOverPlainHTTP: every error has its code and HTTP status.
func TestErrorsOverPlainHTTP(t *testing.T) {
	s := serve(t, edge.Options{})
	s.world.Fail = map[string]error{"busy": request.ErrBusy, "broken": rpctest.ErrInternal, "unknown-outcome": request.ErrOutcomeUnknown}
	if status, body := s.post(t, entityPath+"SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":3},"commandId":"c1"}`); status != 200 {
		t.Fatalf("status %d: %s", status, body)
	}
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name, path, body string
		status           int
		code             connect.Code
	}{
		{"malformed JSON", "SendCommand", `{"entityType":`, 400, connect.CodeInvalidArgument},
		{"no body", "SendCommand", ``, 400, connect.CodeInvalidArgument},
		{"wrong kind of member", "SendCommand", `{"entityType":7}`, 400, connect.CodeInvalidArgument},
		{"both payloads", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":1,"data":"AA=="}`, 400, connect.CodeInvalidArgument},
		{"no type", "SendCommand", `{"entityId":"a","command":"add"}`, 400, connect.CodeInvalidArgument},
		{"bad type", "SendCommand", `{"entityType":"Counter","entityId":"a","command":"add"}`, 400, connect.CodeInvalidArgument},
		{"no id", "SendCommand", `{"entityType":"counter","command":"add"}`, 400, connect.CodeInvalidArgument},
		{"control character in id", "SendCommand", `{"entityType":"counter","entityId":"a\u0000b","command":"add"}`, 400, connect.CodeInvalidArgument},
		{"long id", "SendCommand", `{"entityType":"counter","entityId":"` + long + `","command":"add"}`, 400, connect.CodeInvalidArgument},
		{"no command", "SendCommand", `{"entityType":"counter","entityId":"a"}`, 400, connect.CodeInvalidArgument},
		{"long command", "SendCommand", `{"entityType":"counter","entityId":"a","command":"` + long + `"}`, 400, connect.CodeInvalidArgument},
		{"control character in command", "SendCommand", `{"entityType":"counter","entityId":"a","command":"a\nb"}`, 400, connect.CodeInvalidArgument},
		{"long command id", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","commandId":"` + long[:129] + `"}`, 400, connect.CodeInvalidArgument},
		{"negative expected sequence", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","expectedSequence":-1}`, 400, connect.CodeInvalidArgument},
		{"json for bytes", "SendCommand", `{"entityType":"blob","entityId":"a","command":"set","json":1}`, 400, connect.CodeInvalidArgument},
		{"data that is not JSON", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","data":"` + b64(`{"a":`) + `"}`, 400, connect.CodeInvalidArgument},
		{"data that is not UTF-8", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","data":"` + b64("\"\xff\"") + `"}`, 400, connect.CodeInvalidArgument},
		{"command id used for something else", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":4},"commandId":"c1"}`, 400, connect.CodeInvalidArgument},
		{"unknown type", "SendCommand", `{"entityType":"nothing","entityId":"a","command":"add"}`, 404, connect.CodeNotFound},
		{"unknown command", "SendCommand", `{"entityType":"counter","entityId":"a","command":"nothing"}`, 404, connect.CodeNotFound},
		{"unknown query", "QueryEntity", `{"entityType":"counter","entityId":"a","query":"nothing"}`, 404, connect.CodeNotFound},
		{"no query", "QueryEntity", `{"entityType":"counter","entityId":"a"}`, 400, connect.CodeInvalidArgument},
		{"unknown consistency by number", "QueryEntity", `{"entityType":"counter","entityId":"a","query":"total","consistency":9}`, 400, connect.CodeInvalidArgument},
		{"query of unknown type", "QueryEntity", `{"entityType":"nothing","entityId":"a","query":"total"}`, 404, connect.CodeNotFound},
		{"rejection", "SendCommand", `{"entityType":"counter","entityId":"a","command":"reject"}`, 400, connect.CodeFailedPrecondition},
		{"sequence mismatch", "SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1},"expectedSequence":"0"}`, 400, connect.CodeFailedPrecondition},
		{"busy", "SendCommand", `{"entityType":"counter","entityId":"a","command":"busy"}`, 429, connect.CodeResourceExhausted},
		{"outcome unknown", "SendCommand", `{"entityType":"counter","entityId":"a","command":"unknown-outcome"}`, 504, connect.CodeDeadlineExceeded},
		{"fault of the module", "SendCommand", `{"entityType":"counter","entityId":"a","command":"fault"}`, 500, connect.CodeInternal},
		{"fault of ours", "SendCommand", `{"entityType":"counter","entityId":"a","command":"broken"}`, 500, connect.CodeInternal},
		{"not built", "PassivateEntity", `{"entityType":"counter","entityId":"a"}`, 501, connect.CodeUnimplemented},
		{"unknown procedure", "Explode", `{}`, 501, connect.CodeUnimplemented},
		{"validated by rule", "GetEntity", `{"entityType":"Counter","entityId":"a"}`, 400, connect.CodeInvalidArgument},
		{"page too large", "ListEntities", `{"entityType":"counter","pageSize":1001}`, 400, connect.CodeInvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := s.post(t, entityPath+c.path, c.body)
			if status != c.status {
				t.Errorf("status %d, want %d: %s", status, c.status, body)
			}
			wantCode(t, body, c.code)
			if strings.Contains(body, "/var/lib") {
				t.Errorf("the answer tells internals: %s", body)
			}
		})
	}
	if got := s.world.Total("a"); got != 3 {
		t.Errorf("refused commands changed the total to %d", got)
	}
}

// TestErrorDetails: a handler's rejection and the sequence of an entity are
// details of the error, readable without a library through their debug form.
func TestErrorDetails(t *testing.T) {
	s := serve(t, edge.Options{})
	for _, c := range []struct{ body, kind, debug string }{
		{`{"entityType":"counter","entityId":"a","command":"reject"}`, "hostd.entity.v1.Rejection",
			`{"code":"insufficient_funds","message":"the balance is too low"}`},
		{`{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1},"expectedSequence":"9"}`, "hostd.entity.v1.SequenceMismatch", `{}`},
	} {
		_, body := s.post(t, entityPath+"SendCommand", c.body)
		var e struct {
			Details []struct {
				Type, Value string
				Debug       json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatal(err)
		}
		if len(e.Details) != 1 || e.Details[0].Type != c.kind {
			t.Fatalf("details of %s", body)
		}
		wantJSON(t, string(e.Details[0].Debug), c.debug)
	}
}

func TestNotReadyIsUnavailable(t *testing.T) {
	s := serve(t, edge.Options{})
	s.world.SetTypesError(request.ErrNotReady)
	status, body := s.post(t, entityPath+"SendCommand", `{"entityType":"counter","entityId":"a","command":"add"}`)
	if status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
	wantCode(t, body, connect.CodeUnavailable)
}

// TestQueryByGET: reads can be sent by GET, in JSON and in binary; commands
// cannot.
func TestQueryByGET(t *testing.T) {
	s := serve(t, edge.Options{})
	s.post(t, entityPath+"SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":3}}`)
	message := `{"entityType":"counter","entityId":"a","query":"total"}`
	status, body := s.get(t, entityPath+"QueryEntity?connect=v1&encoding=json&message="+url.QueryEscape(message))
	if status != 200 {
		t.Fatalf("status %d: %s", status, body)
	}
	wantJSON(t, body, `{"json":{"total":3},"sequence":"1"}`)

	binary, err := proto.Marshal(&entityv1.QueryEntityRequest{EntityType: "counter", EntityId: "a", Query: "total"})
	if err != nil {
		t.Fatal(err)
	}
	status, body = s.get(t, entityPath+"QueryEntity?connect=v1&encoding=proto&base64=1&message="+base64.RawURLEncoding.EncodeToString(binary))
	var answer entityv1.QueryEntityResponse
	if err := proto.Unmarshal([]byte(body), &answer); status != 200 || err != nil || answer.GetSequence() != 1 {
		t.Errorf("status %d, %v, %v", status, err, &answer)
	}
	if status, _ = s.get(t, entityPath+"SendCommand?connect=v1&encoding=json&message="+url.QueryEscape(`{}`)); status != http.StatusMethodNotAllowed {
		t.Errorf("Send by GET: status %d", status)
	}
}

func TestPlainEndpoints(t *testing.T) {
	var reason atomic.Pointer[error]
	s := serve(t, edge.Options{
		Node:    served{ready: &reason},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hostd_up 1\n")) }),
	})
	check := func(path string, status int, want string) {
		t.Helper()
		if got, body := s.get(t, path); got != status || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q", path, got, body)
		}
	}
	health := func(body, want string) {
		t.Helper()
		_, got := s.post(t, "/grpc.health.v1.Health/Check", body)
		wantJSON(t, got, want)
	}
	check("/livez", 200, "ok")
	check("/readyz", 200, "ok")
	check("/metrics", 200, "hostd_up 1")
	check("/", 404, "")
	health(`{}`, `{"status":"SERVING_STATUS_SERVING"}`)
	health(`{"service":"hostd.entity.v1.EntityService"}`, `{"status":"SERVING_STATUS_SERVING"}`)
	if status, body := s.post(t, "/grpc.health.v1.Health/Check", `{"service":"other"}`); status != 404 {
		t.Errorf("health of an unknown service: %d %s", status, body)
	}
	err := errors.New("shard 3 has no leader")
	reason.Store(&err)
	check("/livez", 200, "ok")
	check("/readyz", 503, "shard 3 has no leader")
	health(`{}`, `{"status":"SERVING_STATUS_NOT_SERVING"}`)
}
