package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

func newEntityGet(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "get TYPE ID", "Show an entity's shard, sequence, status and last error", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (*entityv1.GetEntityResponse, error) {
		return s.Entity(ctx, args[0], args[1])
	}, entityTable)
}

func entityTable(w io.Writer, e *entityv1.GetEntityResponse) {
	cli.Table(w, "STATUS\t"+e.GetStatus(), func(row func(...any)) {
		row("sequence", e.GetSequence())
		row("snapshot at", e.GetSnapshotSequence())
		row("shard", e.GetShardId())
		row("node", e.GetNodeId())
		row("module", e.GetModuleDigest())
		row("resident", e.GetResident())
		row("state", fmt.Sprintf("%d bytes", e.GetStateBytes()))
		for _, t := range e.GetTimers() {
			row("timer "+t.GetName(), timerText(t))
		}
		row("fuel", e.GetFuel())
		if e.GetPendingMessages() > 0 {
			row("undelivered messages", e.GetPendingMessages())
		}
		for _, a := range e.GetOperatorActions() {
			row("by an operator", actionText(a))
		}
		if e.GetQuarantinedUntil() != nil {
			row("quarantined until", e.GetQuarantinedUntil().AsTime().Format(time.RFC3339))
		}
		if e.GetFaults() > 0 {
			row("consecutive faults", e.GetFaults())
		}
		for i, line := range cli.CleanLines(e.GetLastError()) {
			if i == 0 {
				row("last error", line)
			} else {
				row("", line)
			}
		}
	})
}

// timerText returns a timer as one line.
func timerText(t *entityv1.Timer) string {
	line := t.GetDue().AsTime().UTC().Format(time.RFC3339Nano) + " " + t.GetCommand()
	if t.GetSchedule() == "" {
		return line
	}
	if period, ok := strings.CutPrefix(t.GetSchedule(), "@every "); ok {
		if d, err := time.ParseDuration(period); err == nil {
			return fmt.Sprintf("%s, again every %v, missed: %s", line, d, t.GetMissed())
		}
	}
	return fmt.Sprintf("%s, again %s (%s), missed: %s", line, cli.Clean(t.GetSchedule()), cli.Clean(cmp.Or(t.GetTimeZone(), "UTC")), t.GetMissed())
}

// actionText returns an operator's action on an entity as one line.
func actionText(a *entityv1.OperatorAction) string {
	what := a.GetKind()
	if a.GetTimer() != "" {
		what += " " + cli.Clean(a.GetTimer())
	}
	return fmt.Sprintf("%s %s, command id %s, at sequence %d", a.GetRecordedAt().AsTime().UTC().Format(time.RFC3339Nano), what, cli.Clean(a.GetCommandId()), a.GetSequence())
}

// state is an entity's current state as it is printed.
type state struct {
	cli.Payload
	Sequence     uint64 `json:"sequence"`
	ModuleDigest string `json:"moduleDigest"`
	Deleted      bool   `json:"deleted,omitempty"`
}

func newEntityState(std cli.Stdio) *cobra.Command {
	var c *cobra.Command
	var at uint64
	c = cli.Look(std, "state TYPE ID", "Print the state of an entity, now or at an earlier sequence", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (state, error) {
		req := &entityv1.GetStateRequest{EntityType: args[0], EntityId: args[1]}
		if c.Flags().Changed("at") {
			req.AtSequence = &at
		}
		res, err := cli.Unary(ctx, s, s.EntityService.GetState, req)
		if err != nil {
			return state{}, err
		}
		data := res.GetData()
		if v := res.GetJson(); v != nil {
			data, err = jsonvalue.Append(nil, v)
		}
		return state{cli.NewPayload(data), res.GetSequence(), res.GetModuleDigest(), res.GetDeleted()}, err
	}, func(w io.Writer, v state) {
		fmt.Fprintln(w, v.Text())
		by := ""
		if v.ModuleDigest != "" { // a node of the previous release does not report it
			by = ", by module " + v.ModuleDigest
		}
		if v.Deleted {
			by += "; the entity is deleted, and has the state of a new one"
		}
		fmt.Fprintf(std.Err, "sequence %d%s\n", v.Sequence, by)
	})
	c.Long = "Prints the current state of an entity, replayed by the module that serves its type. With --at it prints an earlier state, replayed by the module that decided that event."
	c.Flags().Uint64Var(&at, "at", 0, "replay events only up to this `sequence`, with the module that decided it")
	return c
}

// eventView is an event as it is printed.
type eventView struct {
	EntityID  string `json:"entityId,omitempty"`
	Sequence  uint64 `json:"sequence"`
	EventType string `json:"eventType"`
	cli.Payload
	StoredType   string    `json:"storedType,omitempty"`
	CommandID    string    `json:"commandId"`
	RecordedAt   time.Time `json:"recordedAt"`
	Tags         []string  `json:"tags"`
	ModuleDigest string    `json:"moduleDigest"`

	Principal *client.Principal `json:"principal,omitempty"`
	Cursor    string            `json:"cursor,omitempty"`
}

func (e eventView) text() string {
	parts := []string{fmt.Sprint(e.Sequence), e.RecordedAt.UTC().Format("2006-01-02T15:04:05.000000Z"), cli.Clean(e.EventType), e.Payload.Text()}
	if e.EntityID != "" {
		parts = append([]string{cli.Clean(e.EntityID)}, parts...)
	}
	if len(e.Tags) > 0 {
		parts = append(parts, "["+cli.Clean(strings.Join(e.Tags, " "))+"]")
	}
	if e.StoredType != "" {
		parts = append(parts, "(stored as "+cli.Clean(e.StoredType)+")")
	}
	return strings.Join(parts, "  ")
}

// viewEvent returns an event of an entity as it is printed. For a delivery, the
// caller adds the further fields.
func viewEvent(e client.Event) eventView {
	return eventView{Sequence: e.Sequence, EventType: e.Type, StoredType: e.StoredType, Payload: cli.NewPayload(e.Data), CommandID: e.CommandID,
		RecordedAt: e.RecordedAt, Tags: append([]string{}, e.Tags...), ModuleDigest: e.ModuleDigest, Principal: e.Principal}
}

// views converts events to the printed form.
func views[E any](events iter.Seq2[E, error], view func(E) eventView) iter.Seq2[eventView, error] {
	return func(yield func(eventView, error) bool) {
		for e, err := range events {
			if err != nil {
				yield(eventView{}, err)
				return
			}
			if !yield(view(e), nil) {
				return
			}
		}
	}
}

func newEntityEvents(std cli.Stdio) *cobra.Command {
	r := client.EventRange{}
	c := cli.Follow(std, "events TYPE ID", "Print the events of an entity, one a line", 2, 2, func() bool { return r.Follow },
		func(ctx context.Context, s *cli.Session, args []string) iter.Seq2[eventView, error] {
			r.EntityType, r.EntityID = args[0], args[1]
			return views(s.ReadEvents(ctx, r), viewEvent)
		}, eventView.text)
	c.Flags().Uint64Var(&r.From, "from", 0, "first `sequence` to print; 0 means the first event")
	c.Flags().Uint64Var(&r.To, "to", 0, "last `sequence` to print; 0 means the newest event")
	c.Flags().BoolVarP(&r.Follow, "follow", "f", false, "continue with new events until interrupted")
	c.Flags().BoolVar(&r.Upcast, "upcast", false, "upcast events of older forms with the module that serves the type")
	return c
}

// Start positions of a tail.
const fromOldest, fromNewest = "oldest", "newest"

func newEntityTail(std cli.Stdio) *cobra.Command {
	sub := client.Subscription{Skipped: func(events uint64) { fmt.Fprintf(std.Err, "skipped %d truncated events\n", events) }}
	var once bool
	var from string
	c := cli.Follow(std, "tail TYPE", "Print the events of all entities of a type as they are committed", 1, 1, func() bool { return sub.Follow && !once },
		func(ctx context.Context, s *cli.Session, args []string) iter.Seq2[eventView, error] {
			sub.EntityType, sub.Follow = args[0], sub.Follow && !once
			sub.FromNewest = from == fromNewest
			return views(s.Subscribe(ctx, sub), func(d client.Delivery) eventView {
				v := viewEvent(d.Event)
				v.EntityID, v.Cursor = d.EntityID, d.Cursor()
				return v
			})
		}, eventView.text)
	c.Long = "Prints the events of all entities of a type, each once and in the order of its entity, from the beginning or after a cursor. If a node fails, it continues at a different node."
	c.Flags().StringVar(&sub.Tag, "tag", "", "print only events with this `tag`")
	c.Flags().StringVar(&sub.Cursor, "cursor", "", "continue after the event with this `cursor`, which -o json prints")
	c.Flags().BoolVarP(&sub.Follow, "follow", "f", true, "continue with new events until interrupted")
	c.Flags().BoolVar(&once, "once", false, "exit after the newest event")
	c.Flags().StringVar(&from, "from", fromOldest, "`position` to start at if --cursor is unset: oldest, or newest, which prints only events that are committed from now on")
	cli.Before(c, func([]string) error {
		switch {
		case from != fromOldest && from != fromNewest:
			return cli.Usagef("--from must be oldest or newest, got %q", from)
		case from == fromNewest && (once || !sub.Follow || sub.Cursor != ""):
			return cli.Usagef("--from newest cannot be combined with --once or --cursor")
		}
		return nil
	})
	c.Flags().BoolVar(&sub.Upcast, "upcast", false, "upcast events of older forms with the module that serves the type")
	c.Flags().BoolVar(&sub.SkipTruncated, "skip-truncated", false, "if events were truncated, report how many and continue with the first one that is left")
	return c
}
