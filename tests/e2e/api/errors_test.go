package api

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

const entityPath = "/hostd.entity.v1.EntityService/"

// refusal is a call that must fail.
type refusal struct {
	name    string
	request proto.Message
	code    connect.Code
	say     string // part of the message that says what is wrong or what to do
}

// TestErrors makes every failing call over every protocol, and checks the code
// and the message of the error.
func TestErrors(t *testing.T) {
	s := start(t, testkit.NodeOptions{}, "counter", "account")
	first := command("counter", "a", "add", `{"amount":3}`)
	first.CommandId = "first"
	s.send(t, first)
	s.send(t, command("account", "a", "open", ""))

	changed := func(change func(*entityv1.SendCommandRequest)) *entityv1.SendCommandRequest {
		r := command("counter", "a", "add", `{"amount":1}`)
		change(r)
		return r
	}
	query := func(entityType, id, name string) *entityv1.QueryEntityRequest {
		return &entityv1.QueryEntityRequest{EntityType: entityType, EntityId: id, Query: name}
	}
	long := strings.Repeat("x", 300)
	const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, r := range []refusal{
		{"unknown type", command("nothing", "a", "add", ""), connect.CodeNotFound, "entity type"},
		{"unknown command", command("counter", "a", "nothing", ""), connect.CodeNotFound, "command"},
		{"unknown query", query("counter", "a", "nothing"), connect.CodeNotFound, "query"},
		{"query of an unknown type", query("nothing", "a", "total"), connect.CodeNotFound, "entity type"},
		{"entity of an unknown type", &entityv1.GetEntityRequest{EntityType: "nothing", EntityId: "a"}, connect.CodeNotFound, "entity type"},
		{"list of an unknown type", &entityv1.ListEntitiesRequest{EntityType: "nothing"}, connect.CodeNotFound, "entity type"},

		{"empty type", command("", "a", "add", ""), connect.CodeInvalidArgument, "type"},
		{"bad type", command("Counter", "a", "add", ""), connect.CodeInvalidArgument, "type"},
		{"long type", command(long[:65], "a", "add", ""), connect.CodeInvalidArgument, "64"},
		{"empty id", command("counter", "", "add", ""), connect.CodeInvalidArgument, "id"},
		{"long id", command("counter", long[:257], "add", ""), connect.CodeInvalidArgument, "256"},
		{"NUL in the id", command("counter", "a\x00b", "add", ""), connect.CodeInvalidArgument, "id"},
		{"line feed in the id", command("counter", "a\nb", "add", ""), connect.CodeInvalidArgument, "id"},
		{"direction mark in the id", command("counter", "a\u202eb", "add", ""), connect.CodeInvalidArgument, "id"},
		{"empty command", command("counter", "a", "", ""), connect.CodeInvalidArgument, "command"},
		{"long command", command("counter", "a", long[:256], ""), connect.CodeInvalidArgument, "255"},
		{"control character in the command", command("counter", "a", "a\tb", ""), connect.CodeInvalidArgument, "command"},
		{"long command id", changed(func(r *entityv1.SendCommandRequest) { r.CommandId = long[:129] }), connect.CodeInvalidArgument, "128"},
		{"control character in the command id", changed(func(r *entityv1.SendCommandRequest) { r.CommandId = "\x7f" }), connect.CodeInvalidArgument, "command id"},
		{"empty query", query("counter", "a", ""), connect.CodeInvalidArgument, "query"},
		{"empty id in a query", query("counter", "", "total"), connect.CodeInvalidArgument, "id"},
		{"expected sequence too large", changed(func(r *entityv1.SendCommandRequest) { r.ExpectedSequence = proto.Uint64(1 << 63) }), connect.CodeInvalidArgument, "sequence"},
		{"data that is no JSON", command("counter", "a", "add", `{"amount":`), connect.CodeInvalidArgument, "JSON"},
		{"two JSON values", command("counter", "a", "add", `{"amount":1} 2`), connect.CodeInvalidArgument, "JSON"},
		{"data that is not UTF-8", command("counter", "a", "add", "\"\xff\""), connect.CodeInvalidArgument, ""},
		{"page too large", &entityv1.ListEntitiesRequest{EntityType: "counter", PageSize: 1001}, connect.CodeInvalidArgument, "page"},
		{"page token that was never given", &entityv1.ListEntitiesRequest{EntityType: "counter", PageToken: "x"}, connect.CodeInvalidArgument, "token"},
		{"command id of another payload", changed(func(r *entityv1.SendCommandRequest) { r.CommandId = "first" }), connect.CodeInvalidArgument, "command id"},
		{"command id of another command", &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "reset", CommandId: "first"}, connect.CodeInvalidArgument, "command id"},
		{"message over the limit", command("counter", "a", "add", `"`+strings.Repeat("x", 1<<20)+`"`), connect.CodeInvalidArgument, "1048576"},

		{"rejection", command("account", "a", "withdraw", `{"amount":1}`), connect.CodeFailedPrecondition, "insufficient_funds"},
		{"payload that does not fit", command("counter", "a", "add", `{"amount":"x"}`), connect.CodeInvalidArgument, "amount: is not a 64-bit integer in digits"},
		{"sequence too low", changed(func(r *entityv1.SendCommandRequest) { r.ExpectedSequence = proto.Uint64(0) }), connect.CodeFailedPrecondition, "sequence 1"},
		{"sequence too high", changed(func(r *entityv1.SendCommandRequest) { r.ExpectedSequence = proto.Uint64(2) }), connect.CodeFailedPrecondition, "sequence 1"},

		{"module that is not there", &modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_Digest{Digest: digest}}, connect.CodeNotFound, "digest"},
		{"download that is not there", &modulev1.DownloadModuleRequest{Digest: digest}, connect.CodeNotFound, "digest"},
		{"activation that is not there", &modulev1.ActivateModuleRequest{EntityType: "counter", Digest: digest}, connect.CodeNotFound, "digest"},
		{"digest that is none", &modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_Digest{Digest: "xyz"}}, connect.CodeInvalidArgument, "digest"},
	} {
		for _, p := range protocols {
			if p.name == "connect json" && (r.name == "data that is not UTF-8" || r.name == "message over the limit") {
				continue // this variant of base64 encodes these bytes differently
			}
			t.Run(r.name+"/"+p.name, func(t *testing.T) {
				s.unchanged(t, []string{"counter", "account"}, func() {
					_, err := s.call(t.Context(), r.request, p.opts...)
					if connect.CodeOf(err) != r.code || err != nil && !strings.Contains(err.Error(), r.say) {
						t.Errorf("got %v, want %s and a message with %q", err, r.code, r.say)
					}
					wantDetail(t, r, err)
				})
			})
		}
	}
	// The node still works.
	if res := s.send(t, command("counter", "a", "add", `{"amount":1}`)); string(res.GetData()) != `{"total":4}` || res.GetSequence() != 2 {
		t.Errorf("the next command gave %v", res)
	}
}

// wantDetail checks the error details of rejected commands.
func wantDetail(t *testing.T, r refusal, err error) {
	t.Helper()
	want := map[string]proto.Message{
		"rejection":                 &entityv1.Rejection{Code: "insufficient_funds", Message: "the balance is smaller than the amount"},
		"payload that does not fit": &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "amount", Description: "is not a 64-bit integer in digits"}}},
		"sequence too low":          &entityv1.SequenceMismatch{Actual: 1},
		"sequence too high":         &entityv1.SequenceMismatch{Actual: 1},
	}[r.name]
	var e *connect.Error
	if !asError(err, &e) {
		t.Errorf("%v is no error of the protocol", err)
		return
	}
	if want == nil {
		for _, d := range e.Details() {
			if strings.HasPrefix(d.Type(), "hostd.") {
				t.Errorf("it has a detail of type %s", d.Type())
			}
		}
		return
	}
	if len(e.Details()) != 1 {
		t.Errorf("it has %d details", len(e.Details()))
		return
	}
	if got, err := e.Details()[0].Value(); err != nil || !proto.Equal(got, want) {
		t.Errorf("the detail is %v, %v, want %v", got, err, want)
	}
}

// TestPlainHTTP checks the responses that a caller with curl sees.
func TestPlainHTTP(t *testing.T) {
	s := start(t, testkit.NodeOptions{}, "counter", "account")
	s.send(t, command("counter", "a", "add", `{"amount":3}`))
	s.send(t, command("account", "a", "open", ""))
	const js = "application/json"
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name, procedure, contentType, body string
		status                             int
		code, say                          string
	}{
		{"half a body", "SendCommand", js, `{"entityType":`, 400, "invalid_argument", "unmarshal"},
		{"no body", "SendCommand", js, ``, 400, "invalid_argument", ""},
		{"an array", "SendCommand", js, `[]`, 400, "invalid_argument", ""},
		{"not JSON", "SendCommand", js, `hello`, 400, "invalid_argument", ""},
		{"number as a type", "SendCommand", js, `{"entityType":7}`, 400, "invalid_argument", ""},
		{"two payloads", "SendCommand", js, `{"entityType":"counter","entityId":"a","command":"add","json":1,"data":"AA=="}`, 400, "invalid_argument", ""},
		{"nothing", "SendCommand", js, `{}`, 400, "invalid_argument", "empty"},
		{"no id", "SendCommand", js, `{"entityType":"counter","command":"add"}`, 400, "invalid_argument", "id"},
		{"escaped control character", "SendCommand", js, `{"entityType":"counter","entityId":"a\u0007","command":"add"}`, 400, "invalid_argument", "id"},
		{"lone surrogate", "SendCommand", js, `{"entityType":"counter","entityId":"a\ud800","command":"add"}`, 400, "invalid_argument", ""},
		{"data that is not base64", "SendCommand", js, `{"entityType":"counter","entityId":"a","command":"add","data":"!"}`, 400, "invalid_argument", ""},
		{"body over the limit", "SendCommand", js, `{"entityType":"counter","entityId":"a","command":"add","json":"` + long + `"}`, 400, "invalid_argument", "1048576"},
		{"deep JSON", "SendCommand", js, `{"entityType":"counter","entityId":"a","command":"add","json":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, 400, "invalid_argument", ""},
		{"unknown type", "SendCommand", js, `{"entityType":"nothing","entityId":"a","command":"add"}`, 404, "not_found", "entity type"},
		{"unknown command", "SendCommand", js, `{"entityType":"counter","entityId":"a","command":"fly"}`, 404, "not_found", "command"},
		{"unknown query", "QueryEntity", js, `{"entityType":"counter","entityId":"a","query":"fly"}`, 404, "not_found", "query"},
		{"unknown consistency", "QueryEntity", js, `{"entityType":"counter","entityId":"a","query":"total","consistency":7}`, 400, "invalid_argument", ""},
		{"rejection", "SendCommand", js, `{"entityType":"account","entityId":"a","command":"withdraw","json":{"amount":5}}`, 400, "failed_precondition", "insufficient_funds"},
		{"mismatch", "SendCommand", js, `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":5},"expectedSequence":"7"}`, 400, "failed_precondition", "sequence 1"},
		{"wrong content type", "SendCommand", "text/plain", `{}`, 415, "", ""},
		{"unknown procedure", "Explode", js, `{}`, 404, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.unchanged(t, []string{"counter", "account"}, func() {
				status, text := s.post(t, entityPath+c.procedure, c.contentType, c.body)
				if status != c.status && !(c.procedure == "Explode" && status == 501) {
					t.Errorf("status %d, want %d: %s", status, c.status, text)
				}
				if c.code == "" {
					return
				}
				f := parseFailure(t, text)
				if f.Code != c.code || !strings.Contains(f.Message, c.say) || f.Message == "" {
					t.Errorf("got %+v, want the code %s and a message with %q", f, c.code, c.say)
				}
				if len(f.Message) > 1000 {
					t.Errorf("the message has %d bytes", len(f.Message))
				}
				detail := map[string]string{"rejection": "hostd.entity.v1.Rejection", "mismatch": "hostd.entity.v1.SequenceMismatch"}[c.name]
				if detail != "" && (len(f.Details) != 1 || f.Details[0].Type != detail) {
					t.Errorf("the details are %+v, want a %s", f.Details, detail)
				}
			})
		})
	}
	t.Run("success", func(t *testing.T) {
		status, text := s.post(t, entityPath+"SendCommand", js, `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":5},"commandId":"x","expectedSequence":"1"}`)
		if want := `{"json":{"total":8},"sequence":"2","eventCount":1,"nodeId":"n1"}`; status != 200 || unmetered(compact(t, text)) != compact(t, want) {
			t.Errorf("%d %s, want %s", status, text, want)
		}
		status, text = s.post(t, entityPath+"QueryEntity", js, `{"entityType":"counter","entityId":"nobody","query":"total"}`)
		if want := `{"json":{"total":0}}`; status != 200 || unmetered(compact(t, text)) != compact(t, want) {
			t.Errorf("%d %s, want %s", status, text, want)
		}
	})
}

// TestSuccessOverEveryProtocol checks that a command and a query succeed over
// every protocol.
func TestSuccessOverEveryProtocol(t *testing.T) {
	s := start(t, testkit.NodeOptions{}, "counter")
	amount, err := structpb.NewValue(map[string]any{"amount": 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range protocols {
		before := time.Now()
		r := &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "é✓ x", Command: "add", Payload: &entityv1.SendCommandRequest_Json{Json: amount}}
		res, err := s.call(t.Context(), r, p.opts...)
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		if got := res.(*entityv1.SendCommandResponse); got.GetJson().GetStructValue().GetFields()["total"].GetNumberValue() != float64(2*i+2) || got.GetSequence() != uint64(i+1) {
			t.Errorf("%s: send gave %v", p.name, got)
		}
		res, err = s.call(t.Context(), &entityv1.QueryEntityRequest{EntityType: "counter", EntityId: "é✓ x", Query: "total"}, p.opts...)
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		if got := res.(*entityv1.QueryEntityResponse); got.GetJson().GetStructValue().GetFields()["total"].GetNumberValue() != float64(2*i+2) || got.GetSequence() != uint64(i+1) {
			t.Errorf("%s: query gave %v after %s", p.name, got, time.Since(before))
		}
	}
}

// unmetered removes the fuel from an answer, because it depends on the guest's
// build.
func unmetered(text string) string { return fuel.ReplaceAllString(text, "") }

var fuel = regexp.MustCompile(`,?"fuel":"[0-9]+"`)
