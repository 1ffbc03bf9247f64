package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

func newEntityGet(std stdio) *cobra.Command {
	var r *remote
	var out *output
	c := leaf("get TYPE ID", "Describe an entity: where it lives and how far it is", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		e, err := c.Entity(ctx, args[0], args[1])
		if err != nil {
			return fmt.Errorf("get: %w", err)
		}
		return printEntity(out, e)
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}

type timerView struct {
	Name    string    `json:"name"`
	Due     time.Time `json:"due"`
	Command string    `json:"command"`

	Schedule string `json:"schedule,omitempty"`
	TimeZone string `json:"timeZone,omitempty"`
	Missed   string `json:"missed,omitempty"`
}

// text is a timer in a line.
func (t *timerView) text() string {
	line := t.Due.UTC().Format(time.RFC3339Nano) + " " + t.Command
	if t.Schedule == "" {
		return line
	}
	if period, ok := strings.CutPrefix(t.Schedule, "@every "); ok {
		if d, err := time.ParseDuration(period); err == nil {
			return fmt.Sprintf("%s, again every %v, missed: %s", line, d, t.Missed)
		}
	}
	zone := t.TimeZone
	if zone == "" {
		zone = "UTC"
	}
	return fmt.Sprintf("%s, again %s (%s), missed: %s", line, clean(t.Schedule), clean(zone), t.Missed)
}

// actView is what a person did to an entity beside its commands.
type actView struct {
	Kind       string    `json:"kind"`
	Timer      string    `json:"timer,omitempty"`
	CommandID  string    `json:"commandId"`
	RecordedAt time.Time `json:"recordedAt"`
	Sequence   uint64    `json:"sequence"`
}

func (a *actView) text() string {
	what := a.Kind
	if a.Timer != "" {
		what += " " + clean(a.Timer)
	}
	return fmt.Sprintf("%s %s, command id %s, at sequence %d", a.RecordedAt.UTC().Format(time.RFC3339Nano), what, clean(a.CommandID), a.Sequence)
}

func printEntity(out *output, e *entityv1.GetEntityResponse) error {
	v := struct {
		Status           string      `json:"status"`
		Sequence         uint64      `json:"sequence"`
		SnapshotSequence uint64      `json:"snapshotSequence"`
		ShardID          uint32      `json:"shardId"`
		NodeID           string      `json:"nodeId"`
		ModuleDigest     string      `json:"moduleDigest"`
		Resident         bool        `json:"resident"`
		StateBytes       uint64      `json:"stateBytes"`
		Timers           []timerView `json:"timers"`
		LastError        string      `json:"lastError"`
		Faults           uint32      `json:"faults"`
		Fuel             uint64      `json:"fuel"`
		PendingSends     uint64      `json:"pendingSends"`
		Acts             []actView   `json:"acts"`
		ParkedUntil      *time.Time  `json:"parkedUntil,omitempty"`
	}{
		e.GetStatus(), e.GetSequence(), e.GetSnapshotSequence(), e.GetShardId(), e.GetNodeId(),
		e.GetModuleDigest(), e.GetResident(), e.GetStateBytes(), []timerView{}, e.GetLastError(), e.GetFaults(), e.GetFuel(), e.GetPendingSends(), []actView{}, nil,
	}
	if e.GetParkedUntil() != nil {
		until := e.GetParkedUntil().AsTime()
		v.ParkedUntil = &until
	}
	for _, a := range e.GetActs() {
		v.Acts = append(v.Acts, actView{a.GetKind(), a.GetTimer(), a.GetCommandId(), a.GetRecordedAt().AsTime(), a.GetSequence()})
	}
	for _, t := range e.GetTimers() {
		v.Timers = append(v.Timers, timerView{t.GetName(), t.GetDue().AsTime(), t.GetCommand(), t.GetSchedule(), t.GetTimeZone(), t.GetMissed()})
	}
	return out.print(v, func(w io.Writer) {
		table(w, "STATUS\t"+v.Status, func(row func(...any)) {
			row("sequence", v.Sequence)
			row("snapshot at", v.SnapshotSequence)
			row("shard", v.ShardID)
			row("node", v.NodeID)
			row("module", v.ModuleDigest)
			row("resident", v.Resident)
			row("state", fmt.Sprintf("%d bytes", v.StateBytes))
			for _, t := range v.Timers {
				row("timer "+t.Name, t.text())
			}
			row("fuel", v.Fuel)
			if v.PendingSends > 0 {
				row("sends under way", v.PendingSends)
			}
			for _, a := range v.Acts {
				row("by a person", a.text())
			}
			if v.ParkedUntil != nil {
				row("parked until", v.ParkedUntil.Format(time.RFC3339))
			}
			if v.Faults > 0 {
				row("faults in a row", v.Faults)
			}
			row("last error", clean(v.LastError))
		})
	})
}

func newEntityState(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var at uint64
	c := leaf("state TYPE ID", "Print an entity's folded state, now or at an earlier sequence", 2, 2, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		req := &entityv1.GetStateRequest{EntityType: args[0], EntityId: args[1]}
		if cmd.Flags().Changed("at") {
			req.AtSequence = &at
		}
		res, err := r.services().entities.GetState(ctx, connect.NewRequest(req))
		if err != nil {
			return fmt.Errorf("state: %w", publicError(err))
		}
		v := struct {
			payload
			Sequence uint64 `json:"sequence"`
		}{newPayload(answerBytes(res.Msg.GetData(), res.Msg.GetJson())), res.Msg.GetSequence()}
		return out.print(v, func(w io.Writer) {
			fmt.Fprintln(w, v.text())
			fmt.Fprintf(std.err, "sequence %d\n", v.Sequence)
		})
	})
	c.Flags().Uint64Var(&at, "at", 0, "fold the events up to this `sequence` only")
	r, out = addRemote(c), addOutput(c, std)
	return c
}

// answerBytes returns a payload that came as bytes or as a JSON value.
func answerBytes(data []byte, v *structpb.Value) []byte {
	if v == nil {
		return data
	}
	text, err := protojson.Marshal(v)
	if err != nil {
		return nil
	}
	return text
}

// eventView is an event as it is printed.
type eventView struct {
	EntityID  string `json:"entityId,omitempty"`
	Sequence  uint64 `json:"sequence"`
	EventType string `json:"eventType"`
	payload
	CommandID    string    `json:"commandId"`
	RecordedAt   time.Time `json:"recordedAt"`
	Tags         []string  `json:"tags"`
	ModuleDigest string    `json:"moduleDigest"`
	Cursor       string    `json:"cursor,omitempty"`
}

func (e eventView) text() string {
	parts := []string{fmt.Sprint(e.Sequence), e.RecordedAt.UTC().Format("2006-01-02T15:04:05.000000Z"), clean(e.EventType), e.payload.text()}
	if e.EntityID != "" {
		parts = append([]string{clean(e.EntityID)}, parts...)
	}
	if len(e.Tags) > 0 {
		parts = append(parts, "["+clean(strings.Join(e.Tags, " "))+"]")
	}
	return strings.Join(parts, "  ")
}

func newEntityEvents(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var from, to uint64
	var follow bool
	c := leaf("events TYPE ID", "Print an entity's events, one a line", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if !follow {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, r.timeout)
			defer cancel()
		}
		for e, err := range c.ReadEvents(ctx, client.EventRange{EntityType: args[0], EntityID: args[1], From: from, To: to, Follow: follow}) {
			if err != nil {
				return following(ctx, follow, fmt.Errorf("events: %w", err))
			}
			v := eventView{Sequence: e.Sequence, EventType: e.Type, payload: newPayload(e.Data), CommandID: e.CommandID,
				RecordedAt: e.RecordedAt, Tags: append([]string{}, e.Tags...), ModuleDigest: e.ModuleDigest}
			if err := out.line(v, v.text()); err != nil {
				return err
			}
		}
		return nil
	})
	c.Flags().Uint64Var(&from, "from", 0, "the first `sequence` wanted")
	c.Flags().Uint64Var(&to, "to", 0, "the last `sequence` wanted")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events until interrupted")
	r, out = addRemote(c), addOutput(c, std)
	return c
}

// following drops the error that an interruption of a followed stream is.
func following(ctx context.Context, follow bool, err error) error {
	if follow && ctx.Err() != nil {
		return nil
	}
	return err
}
