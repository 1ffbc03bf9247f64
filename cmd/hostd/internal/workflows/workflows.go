// Package workflows has the commands that start runs of workflows, wait for
// them, and list them.
package workflows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/api/client"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// NewCommand returns the command "workflow".
func NewCommand(std cli.Stdio) *cobra.Command {
	return cli.Group("workflow", "Start runs of workflows, wait for them, list and signal them",
		newStart(std), newList(std), newGet(std), newResult(std), newSignal(std), newCancel(std), newTerminate(std), newHistory(std))
}

// run is a run as it is printed.
type run struct {
	EntityType  string     `json:"entityType"`
	EntityID    string     `json:"entityId"`
	Status      string     `json:"status"`
	Steps       uint32     `json:"steps"`
	WaitsFor    []string   `json:"waitsFor"`
	StartedAt   time.Time  `json:"startedAt"`
	UpdatedAt   time.Time  `json:"updatedAt"`
	Sequence    uint64     `json:"sequence"`
	Result      rawOrEmpty `json:"result,omitempty"`
	Code        string     `json:"code,omitempty"`
	Message     string     `json:"message,omitempty"`
	Quarantined bool       `json:"quarantined"`
	LastError   string     `json:"lastError,omitempty"`
}

// rawOrEmpty is JSON text that is omitted if it is empty.
type rawOrEmpty []byte

// MarshalJSON returns the text.
func (r rawOrEmpty) MarshalJSON() ([]byte, error) { return r, nil }

func newRun(r *workflowv1.Run) run {
	out := run{
		EntityType: r.GetEntityType(), EntityID: r.GetEntityId(), Status: strings.ToLower(r.GetStatus().String()), Steps: r.GetSteps(),
		WaitsFor: append([]string{}, r.GetWaitsFor()...), StartedAt: r.GetStartedAt().AsTime(), UpdatedAt: r.GetUpdatedAt().AsTime(),
		Sequence: r.GetSequence(), Code: r.GetCode(), Message: r.GetMessage(), Quarantined: r.GetQuarantined(), LastError: r.GetLastError(),
	}
	if r.GetResult() != nil {
		out.Result, _ = jsonvalue.Append(nil, r.GetResult()) // a value that was decoded always encodes
	}
	return out
}

// state is the status as a table shows it.
func (r *run) state() string {
	if r.Quarantined {
		return r.Status + ", quarantined"
	}
	return r.Status
}

// reason is what an open run waits for, or why a run failed.
func (r *run) reason() string {
	if r.Code != "" {
		return cli.Clean(r.Code)
	}
	return cli.Clean(strings.Join(r.WaitsFor, ", "))
}

func (r run) write(w io.Writer) {
	cli.Table(w, "STATUS\t"+r.state(), func(row func(...any)) {
		row("steps", r.Steps)
		for _, wait := range r.WaitsFor {
			row("waits for", cli.Clean(wait))
		}
		row("started at", r.StartedAt.Format(time.RFC3339))
		row("updated at", r.UpdatedAt.Format(time.RFC3339))
		row("sequence", r.Sequence)
		if r.Result != nil {
			row("result", cli.NewPayload(r.Result).Text())
		}
		if r.Code != "" {
			row("code", cli.Clean(r.Code))
			row("message", cli.Clean(r.Message))
		}
		for i, line := range cli.CleanLines(r.LastError) {
			row([]string{"last error", ""}[min(i, 1)], line)
		}
	})
}

func newStart(std cli.Stdio) *cobra.Command {
	var wait time.Duration
	c := cli.Ask(std, "start TYPE ID [JSON]", "Start a run of a workflow and print its status", 2, 3, func(ctx context.Context, s *cli.Session, args []string) (run, error) {
		input, err := cli.PayloadArg(std, args, 2)
		if err != nil {
			return run{}, err
		}
		req := &workflowv1.StartWorkflowRequest{EntityType: args[0], EntityId: args[1]}
		if input != nil {
			req.Input = &workflowv1.StartWorkflowRequest_Data{Data: input}
		}
		res, err := cli.Unary(ctx, s, s.WorkflowService.StartWorkflow, req)
		if err != nil || wait <= 0 || res.GetRun().GetStatus() != workflowv1.RunStatus_RUNNING {
			return newRun(res.GetRun()), err
		}
		return await(ctx, s, args, wait)
	}, func(w io.Writer, r run) { r.write(w) })
	c.Long = "Starts a run. JSON is its input; use - to read it from standard input. If a run with this id has the same input, it prints that run."
	addWait(c, &wait)
	return c
}

func addWait(c *cobra.Command, wait *time.Duration) {
	c.Flags().DurationVar(wait, "wait", 0, "`time` to wait for the end of the run, such as 30s; 0 does not wait")
	cli.Before(c, func([]string) error {
		if *wait < 0 {
			return cli.Usagef("--wait is %s, must be 0 or more", *wait)
		}
		return nil
	})
}

// Each call of a wait lasts at most waitAtOnce, because a node ends calls after
// its longest deadline. callTime is added for the call itself.
const (
	waitAtOnce = 20 * time.Second
	callTime   = 5 * time.Second
)

// await gets a run, and waits for its end.
func await(ctx context.Context, s *cli.Session, args []string, wait time.Duration) (run, error) {
	until := time.Now().Add(wait)
	for {
		left := max(0, min(time.Until(until), waitAtOnce))
		one := *s
		one.Timeout = max(s.Timeout, left+callTime)
		res, err := cli.Unary(ctx, &one, s.WorkflowService.GetWorkflow, &workflowv1.GetWorkflowRequest{EntityType: args[0], EntityId: args[1], Wait: durationpb.New(left)})
		if err != nil || res.GetRun().GetStatus() != workflowv1.RunStatus_RUNNING || left == 0 {
			return newRun(res.GetRun()), err
		}
	}
}

func newGet(std cli.Stdio) *cobra.Command {
	var wait time.Duration
	c := cli.Look(std, "get TYPE ID", "Show the status of a run, what it waits for, and its result", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (run, error) {
		return await(ctx, s, args, wait)
	}, func(w io.Writer, r run) { r.write(w) })
	addWait(c, &wait)
	return c
}

// result is the result of a run as it is printed.
type result struct{ run }

// MarshalJSON returns the result itself.
func (r result) MarshalJSON() ([]byte, error) {
	if r.Result == nil {
		return []byte("null"), nil
	}
	return r.Result, nil
}

// Remark implements cli.Remark.
func (r result) Remark() (string, error) {
	switch {
	case r.Code != "":
		return "", fmt.Errorf("the run has failed: %s: %s", cli.Clean(r.Code), cli.Clean(r.Message))
	case r.Status != "completed":
		return "", cli.Hint(errors.New("the run has not ended"), "Wait longer with --wait, or see what it waits for: hostd workflow get "+cli.Clean(r.EntityType)+" "+cli.Clean(r.EntityID))
	}
	return "", nil
}

func newResult(std cli.Stdio) *cobra.Command {
	var wait time.Duration
	c := cli.Look(std, "result TYPE ID", "Wait for the end of a run and print its result", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (result, error) {
		r, err := await(ctx, s, args, wait)
		return result{r}, err
	}, func(w io.Writer, r result) {
		if r.Result != nil {
			fmt.Fprintln(w, cli.NewPayload(r.Result).Text())
		}
	})
	c.Long = "Waits for the end of a run and prints its result as JSON. It exits with 1 if the run has failed, or has not ended after --wait."
	addWait(c, &wait)
	f := c.Flags().Lookup("wait")
	f.DefValue, wait = "1h0m0s", time.Hour
	return c
}

func newSignal(std cli.Stdio) *cobra.Command {
	var name cli.Named
	c := cli.Order(std, "signal TYPE ID NAME [JSON]", "Send a signal to a run", 3, 4, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		value, err := cli.PayloadArg(std, args, 3)
		if err != nil {
			return "", err
		}
		req := &workflowv1.SignalWorkflowRequest{EntityType: args[0], EntityId: args[1], Name: args[2], CommandId: name.ID, FirstAttemptAge: name.Age()}
		if value != nil {
			req.Value = &workflowv1.SignalWorkflowRequest_Data{Data: value}
		}
		_, err = cli.Unary(ctx, s, s.WorkflowService.SignalWorkflow, req)
		return "signalled", err
	})
	c.Long = "Sends a signal to a run. JSON is its value; use - to read it from standard input."
	cli.AddNamed(c, &name, "signal")
	return c
}

func newCancel(std cli.Stdio) *cobra.Command {
	var name cli.Named
	c := cli.Order(std, "cancel TYPE ID", "Cancel a run: end its pending waits so that it can undo its work", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		_, err := cli.Unary(ctx, s, s.WorkflowService.CancelWorkflow, &workflowv1.CancelWorkflowRequest{EntityType: args[0], EntityId: args[1], CommandId: name.ID, FirstAttemptAge: name.Age()})
		return "cancelled", err
	})
	cli.AddNamed(c, &name, "cancellation")
	return c
}

func newTerminate(std cli.Stdio) *cobra.Command {
	var name cli.Named
	c := cli.Order(std, "terminate TYPE ID", "Terminate a run: end it as failed without letting its code act", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		_, err := cli.Unary(ctx, s, s.WorkflowService.TerminateWorkflow, &workflowv1.TerminateWorkflowRequest{EntityType: args[0], EntityId: args[1], CommandId: name.ID, FirstAttemptAge: name.Age()})
		return "terminated", err
	})
	cli.AddNamed(c, &name, "termination")
	cli.AddConfirm(c, std, func(args []string) string {
		return fmt.Sprintf("Terminate the run %s of type %s? Its code cannot undo its work.", cli.Clean(args[1]), cli.Clean(args[0]))
	})
	return c
}

// runList is a list of runs of one or several types.
type runList struct {
	Runs    []run `json:"runs"`
	several bool
	more    bool // there are more runs than requested
}

// statuses are the values of --status.
var statuses = []string{"running", "completed", "failed"}

func newList(std cli.Stdio) *cobra.Command {
	req := &workflowv1.ListWorkflowsRequest{}
	var status string
	var limit int
	c := cli.Look(std, "ls [TYPE]", "List the runs of a workflow type, or of all", 0, 1, func(ctx context.Context, s *cli.Session, args []string) (runList, error) {
		v := runList{Runs: []run{}, several: len(args) == 0}
		types := args
		if v.several {
			modules, err := s.Modules(ctx)
			if err != nil {
				return v, err
			}
			for _, m := range modules {
				types = append(types, m.GetActiveFor()...)
			}
			slices.Sort(types)
		}
		for _, t := range types {
			one := &workflowv1.ListWorkflowsRequest{EntityType: t, IdPrefix: req.GetIdPrefix(), Status: req.GetStatus(), ShardId: req.GetShardId()}
			if err := v.list(ctx, s, one, limit); err != nil && !(v.several && isNotWorkflow(err)) {
				return v, err
			}
		}
		return v, nil
	}, func(w io.Writer, v runList) { v.write(w) })
	cli.Before(c, func([]string) error {
		i := slices.Index(statuses, status)
		if status != "" && i < 0 {
			return cli.Usagef("--status is %q, must be one of %s", status, strings.Join(statuses, ", "))
		}
		if limit < 0 {
			return cli.Usagef("--limit is %d, must be 0 or more", limit)
		}
		req.Status = workflowv1.RunStatus(i + 1)
		return nil
	})
	c.Flags().StringVar(&status, "status", "", "list only runs with this `status`: "+strings.Join(statuses, ", "))
	c.Flags().StringVar(&req.IdPrefix, "prefix", "", "list only ids that start with this `text`")
	c.Flags().Uint32Var(&req.ShardId, "shard", 0, "list only runs of this `shard`")
	c.Flags().IntVar(&limit, "limit", 1000, "maximum `number` of runs to list; 0 lists all")
	return c
}

// isNotWorkflow reports whether a node has failed a call because the type is not a
// workflow.
func isNotWorkflow(err error) bool {
	failed, ok := errors.AsType[*client.Error](err)
	return ok && failed.Reason == "NOT_A_WORKFLOW"
}

// list adds the runs of a type, up to limit runs in all.
func (v *runList) list(ctx context.Context, s *cli.Session, req *workflowv1.ListWorkflowsRequest, limit int) error {
	for !v.more {
		res, err := cli.Unary(ctx, s, s.WorkflowService.ListWorkflows, req)
		if err != nil {
			return err
		}
		for _, r := range res.GetRuns() {
			if v.more = limit > 0 && len(v.Runs) == limit; v.more {
				return nil
			}
			v.Runs = append(v.Runs, newRun(r))
		}
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			return nil
		}
	}
	return nil
}

func (v runList) write(w io.Writer) {
	head := "ID\tSTATUS\tSTEPS\tSTARTED\tWAITS FOR, OR CODE"
	if v.several {
		head = "TYPE\t" + head
	}
	cli.Table(w, head, func(row func(...any)) {
		for i := range v.Runs {
			r := &v.Runs[i]
			cells := []any{r.EntityType, r.EntityID, r.state(), r.Steps, r.StartedAt.Format(time.RFC3339), r.reason()}
			if !v.several {
				cells = cells[1:]
			}
			row(cells...)
		}
	})
}

// Remark implements cli.Remark.
func (v runList) Remark() (line string, failure error) {
	if v.more {
		line = "there are more; see them with --limit"
	}
	return line, nil
}

// event is an event of a run as it is printed.
type event struct {
	Sequence     uint64    `json:"sequence"`
	EventType    string    `json:"eventType"`
	RecordedAt   time.Time `json:"recordedAt"`
	ModuleDigest string    `json:"moduleDigest"`
	cli.Payload
}

func (e event) text() string {
	return fmt.Sprintf("%d  %s  %s  %s", e.Sequence, e.RecordedAt.UTC().Format("2006-01-02T15:04:05.000000Z"), cli.Clean(e.EventType), e.Payload.Text())
}

func newHistory(std cli.Stdio) *cobra.Command {
	var newest bool
	c := cli.Follow(std, "history TYPE ID", "Print the events of a run, one a line", 2, 2, func() bool { return false },
		func(ctx context.Context, s *cli.Session, args []string) iter.Seq2[event, error] {
			req := &workflowv1.GetWorkflowHistoryRequest{EntityType: args[0], EntityId: args[1], NewestFirst: newest}
			return func(yield func(event, error) bool) {
				for {
					res, err := cli.Unary(ctx, s, s.WorkflowService.GetWorkflowHistory, req)
					if err != nil {
						yield(event{}, err)
						return
					}
					for _, e := range res.GetEvents() {
						one := event{Sequence: e.GetSequence(), EventType: e.GetEventType(), RecordedAt: e.GetRecordedAt().AsTime(), ModuleDigest: e.GetModuleDigest()}
						if e.GetPayload() != nil {
							text, err := jsonvalue.Append(nil, e.GetPayload())
							if err != nil {
								yield(event{}, err)
								return
							}
							one.Payload = cli.NewPayload(text)
						}
						if !yield(one, nil) {
							return
						}
					}
					if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
						return
					}
				}
			}
		}, event.text)
	c.Flags().BoolVar(&newest, "newest-first", false, "print the newest event first")
	return c
}
