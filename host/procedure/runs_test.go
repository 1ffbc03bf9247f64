package procedure

import (
	"testing"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
	"github.com/hostd/hostd/host/authz"
)

// TestRunsNeedRightsOfTheirCommands: a call about a run is decided like the
// command or query of the entity that it stands for, so that calls about runs
// give no role more rights.
func TestRunsNeedRightsOfTheirCommands(t *testing.T) {
	for path, tt := range map[string]struct {
		m    any
		want authz.Call
	}{
		workflowv1connect.WorkflowServiceStartWorkflowProcedure: {&workflowv1.StartWorkflowRequest{EntityType: "payout", EntityId: "p"}, authz.Call{Verb: authv1.Verb_INVOKE, Command: "start"}},
		workflowv1connect.WorkflowServiceSignalWorkflowProcedure: {
			&workflowv1.SignalWorkflowRequest{EntityType: "payout", EntityId: "p", Name: "start"}, authz.Call{Verb: authv1.Verb_INVOKE, Command: "signal"},
		},
		workflowv1connect.WorkflowServiceCancelWorkflowProcedure:     {&workflowv1.CancelWorkflowRequest{EntityType: "payout", EntityId: "p"}, authz.Call{Verb: authv1.Verb_INVOKE, Command: "cancel"}},
		workflowv1connect.WorkflowServiceTerminateWorkflowProcedure:  {&workflowv1.TerminateWorkflowRequest{EntityType: "payout", EntityId: "p"}, authz.Call{Verb: authv1.Verb_INVOKE, Command: "terminate"}},
		workflowv1connect.WorkflowServiceGetWorkflowProcedure:        {&workflowv1.GetWorkflowRequest{EntityType: "payout", EntityId: "p"}, authz.Call{Verb: authv1.Verb_QUERY, Command: "state"}},
		workflowv1connect.WorkflowServiceQueryWorkflowProcedure:      {&workflowv1.QueryWorkflowRequest{EntityType: "payout", EntityId: "p"}, authz.Call{Verb: authv1.Verb_QUERY, Command: "state"}},
		workflowv1connect.WorkflowServiceGetWorkflowHistoryProcedure: {&workflowv1.GetWorkflowHistoryRequest{EntityType: "payout", EntityId: "p"}, authz.Call{Verb: authv1.Verb_READ}},
	} {
		tt.want.Types, tt.want.Type, tt.want.IDs, tt.want.ID = authz.One, "payout", authz.One, "p"
		p := At(path)
		got := authz.Call{Verb: p.Verb}
		if p.Of(tt.m, &got); got != tt.want {
			t.Errorf("%s: %+v, want %+v", path, got, tt.want)
		}
	}
	got := authz.Call{Verb: authv1.Verb_QUERY}
	At(workflowv1connect.WorkflowServiceQueryWorkflowProcedure).Of(&workflowv1.QueryWorkflowRequest{EntityType: "payout", EntityId: "p", Query: "other"}, &got)
	if got.Command != "other" {
		t.Errorf("a query of its own: %+v", got)
	}
	got = authz.Call{Verb: authv1.Verb_READ}
	list := At(workflowv1connect.WorkflowServiceListWorkflowsProcedure)
	if list.Of(&workflowv1.ListWorkflowsRequest{EntityType: "payout", IdPrefix: "p"}, &got); !list.Narrows || got.Types != authz.One || got.IDs != authz.Beginning || got.ID != "p" {
		t.Errorf("a listing: %+v", got)
	}
}
