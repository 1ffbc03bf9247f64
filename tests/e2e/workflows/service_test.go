package workflows

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
)

// service returns the workflow service of a node.
func (b *bank) service(node int) workflowv1connect.WorkflowServiceClient {
	return workflowv1connect.NewWorkflowServiceClient(http.DefaultClient, b.cluster.Node(node).API())
}

// input is the input of a run that waits for an approval and pays nobody.
const input = `{"from":"from","to":[],"amount":1,"approve":true}`

func startOf(id, input string) *connect.Request[workflowv1.StartWorkflowRequest] {
	return connect.NewRequest(&workflowv1.StartWorkflowRequest{EntityType: "payout", EntityId: id, Input: &workflowv1.StartWorkflowRequest_Data{Data: []byte(input)}})
}

func getOf(id string, wait time.Duration) *connect.Request[workflowv1.GetWorkflowRequest] {
	return connect.NewRequest(&workflowv1.GetWorkflowRequest{EntityType: "payout", EntityId: id, Wait: durationpb.New(wait)})
}

func signalOf(id, name, value string) *connect.Request[workflowv1.SignalWorkflowRequest] {
	return connect.NewRequest(&workflowv1.SignalWorkflowRequest{EntityType: "payout", EntityId: id, Name: name, Value: &workflowv1.SignalWorkflowRequest_Data{Data: []byte(value)}})
}

// list lists runs of a status at a node, in pages of a size. If a page fails
// because a node has just ended, it is requested again.
func (b *bank) list(node int, status workflowv1.RunStatus, size uint32) (ids []string, pages int) {
	b.t.Helper()
	req := &workflowv1.ListWorkflowsRequest{EntityType: "payout", Status: status, PageSize: size}
	for more := true; more; pages++ {
		b.cluster.Await("a page of runs", func() bool {
			ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
			defer cancel()
			res, err := b.service(node).ListWorkflows(ctx, connect.NewRequest(req))
			if err != nil {
				if code := connect.CodeOf(err); code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded {
					b.t.Fatalf("list at node %d: %v", node, err)
				}
				return false
			}
			if n := len(res.Msg.GetRuns()); n > int(size) {
				b.t.Errorf("a page has %d runs, %d were requested", n, size)
			}
			for _, r := range res.Msg.GetRuns() {
				ids = append(ids, r.GetEntityId())
				if r.GetStatus() != status || r.GetStartedAt().AsTime().Year() < 2020 {
					b.t.Errorf("listed by %v: %v", status, r)
				}
				if waits := r.GetWaitsFor(); status == workflowv1.RunStatus_RUNNING && !slices.Equal(waits, []string{"wait approval"}) {
					b.t.Errorf("%s waits for %q", r.GetEntityId(), waits)
				}
			}
			req.PageToken = res.Msg.GetNextPageToken()
			more = req.PageToken != ""
			return true
		})
	}
	slices.Sort(ids)
	return ids, pages
}

func reasonOf(err error) string {
	var failed *connect.Error
	if !errors.As(err, &failed) {
		return ""
	}
	for _, d := range failed.Details() {
		if value, err := d.Value(); err == nil {
			if info, ok := value.(*errdetails.ErrorInfo); ok {
				return info.GetReason()
			}
		}
	}
	return ""
}

// TestRunsAreListedAcrossNodes starts runs at different nodes of three, and
// lists them at each node, in small pages. Then it kills a node, and lists them
// at the other nodes, from the replicas that lead now. Runs that were signalled
// are listed as completed, and a call to wait for them succeeds at every node.
func TestRunsAreListedAcrossNodes(t *testing.T) {
	const runs = 30
	b := newBank(t, 3)
	var want []string
	for i := range runs {
		id := fmt.Sprintf("r%02d", i)
		want = append(want, id)
		res, err := b.service(i%3).StartWorkflow(t.Context(), startOf(id, input))
		if err != nil || res.Msg.GetRun().GetStatus() != workflowv1.RunStatus_RUNNING || res.Msg.GetRun().GetSteps() != 1 {
			t.Fatalf("start %s: %v, %v", id, res, err)
		}
	}
	for node := range 3 {
		if ids, pages := b.list(node, workflowv1.RunStatus_RUNNING, 4); !slices.Equal(ids, want) || pages < runs/4 {
			t.Errorf("node %d lists %q in %d pages", node, ids, pages)
		}
	}
	b.cluster.Kill(2)
	for node := range 2 {
		if ids, _ := b.list(node, workflowv1.RunStatus_RUNNING, 7); !slices.Equal(ids, want) {
			t.Errorf("with a node less, node %d lists %q", node, ids)
		}
	}
	for i, id := range want[:runs/2] {
		b.cluster.Await("the signal of "+id, func() bool {
			_, err := b.service(i%2).SignalWorkflow(t.Context(), signalOf(id, "approval", `{"by":"bo"}`))
			return err == nil || reasonOf(err) == "RUN_ENDED"
		})
	}
	b.cluster.Restart(2)
	for i, id := range want[:runs/2] {
		var run *workflowv1.Run
		b.cluster.Await("the end of "+id, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			res, err := b.service(i%3).GetWorkflow(ctx, getOf(id, 15*time.Second))
			if err == nil {
				run = res.Msg.GetRun()
			}
			return run.GetStatus() == workflowv1.RunStatus_COMPLETED
		})
		if by := run.GetResult().GetStructValue().GetFields()["by"].GetStringValue(); by != "bo" || len(run.GetWaitsFor()) != 0 {
			t.Errorf("run %s has ended: %v", id, run)
		}
	}
	for node := range 3 {
		if ids, _ := b.list(node, workflowv1.RunStatus_RUNNING, 4); !slices.Equal(ids, want[runs/2:]) {
			t.Errorf("node %d lists the running runs %q", node, ids)
		}
		if ids, _ := b.list(node, workflowv1.RunStatus_COMPLETED, 4); !slices.Equal(ids, want[:runs/2]) {
			t.Errorf("node %d lists the completed runs %q", node, ids)
		}
	}
	b.cluster.Kill(0)
	b.cluster.Node(0).MustVerify() // checks that the index agrees with the rows
}

// TestWorkflowService checks the effect of each call of the service, and that
// its errors have reasons.
func TestWorkflowService(t *testing.T) {
	b := newBank(t, 1)
	s, ctx := b.service(0), t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err := s.StartWorkflow(ctx, startOf("a", input))
	must("start", err)
	_, err = s.StartWorkflow(ctx, startOf("a", `{ "approve": true, "amount": 1, "to": [], "from": "from" }`))
	must("start with the same input in another form", err)
	fails := func(what, reason string, code connect.Code, err error) {
		t.Helper()
		if reasonOf(err) != reason || connect.CodeOf(err) != code {
			t.Errorf("%s: %v with the reason %q, want %v with %q", what, err, reasonOf(err), code, reason)
		}
	}
	_, err = s.StartWorkflow(ctx, startOf("a", `{"from":"from","to":[],"amount":2}`))
	fails("start with another input", "RUN_EXISTS", connect.CodeAlreadyExists, err)
	_, err = s.GetWorkflow(ctx, getOf("none", 0))
	fails("get", "RUN_NOT_FOUND", connect.CodeNotFound, err)
	_, err = s.SignalWorkflow(ctx, signalOf("none", "approval", "{}"))
	fails("signal", "RUN_NOT_FOUND", connect.CodeNotFound, err)
	_, err = s.GetWorkflowHistory(ctx, connect.NewRequest(&workflowv1.GetWorkflowHistoryRequest{EntityType: "payout", EntityId: "none"}))
	fails("history", "RUN_NOT_FOUND", connect.CodeNotFound, err)
	_, err = s.ListWorkflows(ctx, connect.NewRequest(&workflowv1.ListWorkflowsRequest{EntityType: "account"}))
	fails("list", "NOT_A_WORKFLOW", connect.CodeFailedPrecondition, err)
	_, err = s.StartWorkflow(ctx, connect.NewRequest(&workflowv1.StartWorkflowRequest{EntityType: "account", EntityId: "a"}))
	fails("start", "NOT_A_WORKFLOW", connect.CodeFailedPrecondition, err)

	q, err := s.QueryWorkflow(ctx, connect.NewRequest(&workflowv1.QueryWorkflowRequest{EntityType: "payout", EntityId: "a"}))
	must("query", err)
	if status := q.Msg.GetReply().GetStructValue().GetFields()["status"].GetStringValue(); status != "running" {
		t.Errorf("the query returns %v", q.Msg)
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	g, err := s.GetWorkflow(short, getOf("a", time.Minute))
	must("a wait that is longer than its deadline", err)
	if run := g.Msg.GetRun(); run.GetStatus() != workflowv1.RunStatus_RUNNING || run.GetSequence() != 2 {
		t.Errorf("the run is %v", run)
	}
	woken := make(chan *workflowv1.Run, 1)
	go func() {
		defer close(woken)
		long, cancel := context.WithTimeout(ctx, 25*time.Second)
		defer cancel()
		g, err := s.GetWorkflow(long, getOf("a", 20*time.Second))
		if err != nil {
			t.Error(err)
			return
		}
		woken <- g.Msg.GetRun()
	}()
	_, err = s.CancelWorkflow(ctx, connect.NewRequest(&workflowv1.CancelWorkflowRequest{EntityType: "payout", EntityId: "a"}))
	must("cancel", err)
	if run := <-woken; run.GetStatus() != workflowv1.RunStatus_FAILED || run.GetCode() != "cancelled" {
		t.Errorf("the cancelled run is %v", run)
	}
	_, err = s.CancelWorkflow(ctx, connect.NewRequest(&workflowv1.CancelWorkflowRequest{EntityType: "payout", EntityId: "a"}))
	fails("cancel", "RUN_ENDED", connect.CodeFailedPrecondition, err)

	_, err = s.StartWorkflow(ctx, startOf("b", input))
	must("start", err)
	_, err = s.TerminateWorkflow(ctx, connect.NewRequest(&workflowv1.TerminateWorkflowRequest{EntityType: "payout", EntityId: "b"}))
	must("terminate", err)
	g, err = s.GetWorkflow(ctx, getOf("b", 0))
	must("get", err)
	if run := g.Msg.GetRun(); run.GetCode() != "terminated" || run.GetMessage() == "" || run.GetStatus() != workflowv1.RunStatus_FAILED {
		t.Errorf("the terminated run is %v", run)
	}
	if ids, _ := b.list(0, workflowv1.RunStatus_FAILED, 1); !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("the failed runs are %q", ids)
	}
	var types []string
	req := &workflowv1.GetWorkflowHistoryRequest{EntityType: "payout", EntityId: "a", PageSize: 1}
	for pages := 0; pages == 0 || req.PageToken != ""; pages++ {
		h, err := s.GetWorkflowHistory(ctx, connect.NewRequest(req))
		must("history", err)
		for _, e := range h.Msg.GetEvents() {
			types = append(types, e.GetEventType())
		}
		req.PageToken = h.Msg.GetNextPageToken()
	}
	if want := []string{"began", "asked", "cancelled", "ended"}; !slices.Equal(types, want) {
		t.Errorf("the history is %q, want %q", types, want)
	}
	b.cluster.Stop(0)
	b.cluster.Node(0).MustVerify()
}

// TestPathsOfRuns checks the responses on the plain HTTP paths of runs, and
// that the node's OpenAPI document contains these paths.
func TestPathsOfRuns(t *testing.T) {
	b := newBank(t, 1)
	base := b.cluster.Node(0).API()
	ask := func(method, path, body string, header ...string) (int, string, http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, strings.TrimSpace(string(text)), res.Header
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string // text that the body must contain
	}{
		{"GET", "/w/payout/p1", "", 404, `"RUN_NOT_FOUND"`},
		{"POST", "/w/payout/p1", input, 202, `"waitsFor":["wait approval"]`},
		{"POST", "/w/payout/p1", `{"amount":1,"from":"from","approve":true,"to":[]}`, 202, `"status":"running"`},
		{"POST", "/w/payout/p1", `{"from":"x","to":[],"amount":1}`, 409, `"RUN_EXISTS"`},
		{"POST", "/w/payout/p1", `{"from"`, 400, `"invalid_argument"`},
		{"GET", "/w/payout/p1?wait=10ms", "", 202, `"steps":1`},
		{"GET", "/w/payout/p1?wait=soon", "", 400, `"invalid_argument"`},
		{"GET", "/w/payout/p1?weight=1s", "", 400, `"invalid_argument"`},
		{"POST", "/w/payout/p1/signals/approval", `{"by"`, 400, `"invalid_argument"`},
		{"POST", "/w/payout/p1/signals/approval", `{"by":"bo"}`, 204, ""},
		{"GET", "/w/payout/p1?wait=20s", "", 200, `{"by":"bo","paid":0,"returned":0}`},
		{"POST", "/w/payout/p1/signals/approval", `{}`, 409, `"RUN_ENDED"`},
		{"GET", "/w/payout/p1/history?page_size=1", "", 200, `"eventType":"began"`},
		{"GET", "/w/payout/p1/history?page_size=x", "", 400, `"invalid_argument"`},
		{"POST", "/w/payout/p2?wait=20s", `{"from":"from","to":[],"amount":1}`, 200, `{"paid":0,"returned":0}`},
		{"POST", "/w/payout/p3", input, 202, `"running"`},
		{"POST", "/w/payout/p3/cancel", "", 204, ""},
		{"GET", "/w/payout/p3?wait=20s", "", 422, `"cancelled"`},
		{"POST", "/w/payout/p4", input, 202, `"running"`},
		{"POST", "/w/payout/p4/terminate", "", 204, ""},
		{"GET", "/w/payout/p4", "", 422, `"terminated"`},
		{"POST", "/w/account/from", "{}", 400, `"NOT_A_WORKFLOW"`},
		{"DELETE", "/w/payout/p4", "", 405, `"unimplemented"`},
		{"GET", "/w/payout/p4/cancel", "", 405, `"unimplemented"`},
		{"POST", "/w/payout/p4/nothing", "", 404, `"not_found"`},
		{"POST", "/w/payout/p4/signals", "", 404, `"not_found"`},
	} {
		status, body, _ := ask(tt.method, tt.path, tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) || tt.status == 204 && body != "" {
			t.Errorf("%s %s %s: %d %s, want %d with %s", tt.method, tt.path, tt.body, status, body, tt.status, tt.want)
		}
	}
	if status, _, header := ask("GET", "/w/payout/p1", ""); status != 200 || header.Get("Hostd-Run-Status") != "completed" || header.Get("ETag") == "" {
		t.Errorf("%d, %v", status, header)
	}
	for range 2 { // a signal with a key is sent once
		if status, body, _ := ask("POST", "/w/payout/p5", input); status != 202 {
			t.Errorf("%d %s", status, body)
		}
		if status, body, _ := ask("POST", "/w/payout/p5/signals/other", "1", "Idempotency-Key", "k"); status != 204 {
			t.Errorf("%d %s", status, body)
		}
	}
	if _, body, _ := ask("GET", "/w/payout/p5/history", ""); strings.Count(body, `"signalled"`) != 1 {
		t.Errorf("the history of a run with one signal: %s", body)
	}
	_, text, _ := ask("GET", "/openapi.json?type=payout", "")
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	for path, method := range map[string]string{"": "get", "/signals/{name}": "post", "/cancel": "post", "/terminate": "post", "/history": "get"} {
		if doc.Paths["/w/payout/{id}"+path][method] == nil {
			t.Errorf("the description has no %s of %q", method, path)
		}
	}
}

// TestWorkflowCommands checks the commands for runs on the command line, with
// both formats of output.
func TestWorkflowCommands(t *testing.T) {
	b := newBank(t, 1)
	node := b.cluster.Node(0)
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"workflow start payout c1 " + input, 0, "wait approval"},
		{"workflow ls payout --status running", 0, "c1"},
		{"workflow ls -o json", 0, `"waitsFor":["wait approval"]`},
		{"workflow ls payout --status waiting", 2, "running, completed, failed"},
		{"workflow get payout c1 -o json", 0, `"status":"running"`},
		{"workflow get payout none", 1, "there is no run of this id"},
		{"workflow result payout c1 --wait 10ms", 1, "the run has not ended"},
		{`workflow signal payout c1 approval {"by":"bo"}`, 0, "signalled"},
		{"workflow result payout c1", 0, `{"by":"bo","paid":0,"returned":0}`},
		{"workflow result payout c1 -o json", 0, `"by":"bo"`},
		{"workflow history payout c1", 0, "signalled"},
		{"workflow history payout c1 --newest-first -o json", 0, `"eventType":"ended"`},
		{"workflow start payout c2 --wait 20s " + `{"from":"from","to":[],"amount":1}`, 0, "completed"},
		{"workflow start payout c3 " + input, 0, "running"},
		{"workflow cancel payout c3", 0, "cancelled"},
		{"workflow result payout c3", 1, "the run has failed: cancelled"},
		{"workflow start payout c4 " + input, 0, "running"},
		{"workflow terminate payout c4 --yes", 0, "terminated"},
		{"workflow ls payout --status failed", 0, "terminated"},
		{"workflow signal payout c4 approval", 1, "the run has ended"},
		{"auth can-i invoke payout/c1 signal", 0, ""},
	} {
		args := append(strings.Split(tt.args, " "), "--addr", node.Address())
		out, code := node.Run(args...)
		if compact := strings.NewReplacer(" ", "", "\n", "").Replace(out); code != tt.code || !strings.Contains(out, tt.want) && !strings.Contains(compact, strings.ReplaceAll(tt.want, " ", "")) {
			t.Errorf("%s: %d, want %d with %s\n%s", tt.args, code, tt.code, cmp.Or(tt.want, "anything"), out)
		}
	}
}
