package debugging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/jsontext"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/debugging/entityfile"
	"github.com/hostd/hostd/cmd/hostd/internal/jsondiff"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/sharding"
)

// stepOptions are the options of 'hostd step'.
type stepOptions struct {
	at       uint64
	module   string // a file
	commands []string
	data     []string
}

// stepView is an event, and its effect on the state.
type stepView struct {
	Sequence   uint64    `json:"sequence"`
	RecordedAt time.Time `json:"recordedAt"`
	EventType  string    `json:"eventType"`
	cli.Payload
	State   cli.Payload       `json:"state"`
	Changes []jsondiff.Change `json:"changes,omitempty"`
}

func (v stepView) text() string {
	lines := []string{fmt.Sprintf("%d  %s  %s  %s", v.Sequence, v.RecordedAt.UTC().Format("2006-01-02T15:04:05.000000Z"), cli.Clean(v.EventType), v.Payload.Text())}
	return strings.Join(append(lines, stateText(v.State, v.Changes)...), "\n")
}

func stateText(state cli.Payload, changes []jsondiff.Change) []string {
	lines := []string{"   state " + state.Text()}
	for _, c := range changes {
		lines = append(lines, "   "+c.Text())
	}
	return lines
}

// forkView is the effect of a command on top of the history.
type forkView struct {
	Command string      `json:"command"`
	Events  []forkEvent `json:"events,omitempty"`
	Reply   cli.Payload `json:"reply"`
	Reject  *rejection  `json:"rejection,omitempty"`
	Sends   []forkSend  `json:"sends,omitempty"` // messages that a node would send; nothing is sent here
	Timers  []forkTimer `json:"timers,omitempty"`
	Deletes bool        `json:"deletes,omitempty"`

	Sequence uint64            `json:"sequence"`
	State    cli.Payload       `json:"state"`
	Changes  []jsondiff.Change `json:"changes,omitempty"`
}

// forkEvent is an event that a command emitted.
type forkEvent struct {
	EventType string `json:"eventType"`
	cli.Payload
}

// rejection is why a command was rejected.
type rejection struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// forkSend is a message that was not sent.
type forkSend struct {
	EntityType string `json:"entityType"`
	EntityID   string `json:"entityId"`
	Command    string `json:"command"`
	cli.Payload
}

// forkTimer is a timer that was not really set or cancelled.
type forkTimer struct {
	Name    string    `json:"name"`
	Due     time.Time `json:"due"`
	Command string    `json:"command,omitempty"`
	Cancel  bool      `json:"cancel,omitempty"`
}

func (v forkView) text() string {
	lines := []string{"command " + cli.Clean(v.Command)}
	add := func(format string, args ...any) { lines = append(lines, "   "+fmt.Sprintf(format, args...)) }
	if v.Reject != nil {
		add("rejected %s: %s", cli.Clean(v.Reject.Code), cli.Clean(v.Reject.Message))
	} else {
		add("reply %s", v.Reply.Text())
	}
	for _, e := range v.Events {
		add("event %s  %s", cli.Clean(e.EventType), e.Payload.Text())
	}
	for _, s := range v.Sends {
		add("not sent: %s %s %s  %s", cli.Clean(s.EntityType), cli.Clean(s.EntityID), cli.Clean(s.Command), s.Payload.Text())
	}
	for _, t := range v.Timers {
		if t.Cancel {
			add("timer not cancelled: %s", cli.Clean(t.Name))
		} else {
			add("timer not set: %s %s %s", cli.Clean(t.Name), t.Due.Format(time.RFC3339Nano), cli.Clean(t.Command))
		}
	}
	if v.Deletes {
		add("the entity's life ends")
	}
	return strings.Join(append(lines, stateText(v.State, v.Changes)...), "\n")
}

// NewStep returns the command 'hostd step'.
func NewStep(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var o stepOptions
	c := cli.Leaf("step FILE", "Replay a downloaded history event by event and try commands on it; needs no node", 1, 1, func(ctx context.Context, c *cobra.Command, args []string) error {
		if !c.Flags().Changed("at") {
			o.at = 1<<64 - 1
		}
		return step(ctx, std, out, args[0], o)
	})
	c.Long = "Prints each event of a file of 'hostd pull', the state after it, and what it changed. Commands run in order on top of the last state, as a fork: " +
		"their events are applied, but nothing is stored, sent or scheduled. The guest sees the time of the last event."
	c.Flags().Uint64Var(&o.at, "at", 0, "stop after this `sequence`; 0 stops before the first event")
	c.Flags().StringVar(&o.module, "module", "", "`file` of the module to replay with, instead of the module in FILE")
	c.Flags().StringArrayVar(&o.commands, "command", nil, "`name` of a command to run at the end; may be repeated")
	c.Flags().StringArrayVar(&o.data, "data", nil, "`payload` of a command in JSON; the first --data belongs to the first --command, and so on")
	cli.Before(c, func([]string) error {
		if len(o.data) > len(o.commands) {
			return cli.Usagef("--data needs a --command")
		}
		return nil
	})
	out = cli.AddOutput(c, std)
	return c
}

func step(ctx context.Context, std cli.Stdio, out *cli.Output, path string, o stepOptions) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	file, err := entityfile.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	wasm := file.Module
	if o.module != "" {
		if wasm, err = cli.ReadModule(o.module); err != nil {
			return err
		}
	}
	e, err := guest.New(ctx, guest.Options{TellFaults: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	digest := sha256.Sum256(wasm)
	m, err := e.Compile(ctx, digest, wasm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	id := sharding.EntityID{Type: file.About.EntityType, ID: file.About.EntityID}
	stepper, err := replay.NewStepper(ctx, m, id, e.Limits(), func(_ abi.LogLevel, text []byte) {
		fmt.Fprintln(std.Err, "guest: "+cli.Quote(string(text)))
	})
	if err != nil {
		return err
	}
	defer stepper.Close()
	fmt.Fprintf(std.Err, "%s %s, by module %s\n", cli.Clean(id.Type), cli.Clean(id.ID), hex.EncodeToString(digest[:]))
	if b := file.About.Base; b != nil {
		if o.at < b.Sequence {
			return fmt.Errorf("the first events were truncated: the file begins with the state at event %d", b.Sequence)
		}
		if err := stepper.Begin(ctx, b.Sequence, b.State, b.StateVersion); err != nil {
			return cli.Hint(fmt.Errorf("load the state at event %d, with which the file begins: %w", b.Sequence, err), "A different module may not be able to read the states of the module in the file.")
		}
		fmt.Fprintf(std.Err, "the first events were truncated: the replay begins with the state at event %d\n", b.Sequence)
	}
	w := walk{Stepper: stepper, out: out, now: file.About.PulledAt}
	for _, t := range m.Manifest().EntityTypes {
		w.json = w.json || t.Name == id.Type && t.Encoding == manifest.JSON
	}
	if w.state, err = stepper.State(); err != nil {
		return err
	}
	if err := w.events(ctx, file, o.at); err != nil {
		return err
	}
	for i, name := range o.commands {
		var data []byte
		if i < len(o.data) {
			data = []byte(o.data[i])
		}
		if err := w.command(ctx, i, name, data); err != nil {
			return fmt.Errorf("command %s: %w", name, err)
		}
	}
	return nil
}

// walk steps through a history.
type walk struct {
	*replay.Stepper
	out   *cli.Output
	state []byte
	now   time.Time
	json  bool // payloads are JSON text
}

// nextChanges returns the current state, and its differences from the state at the
// previous call.
func (w *walk) nextChanges() (cli.Payload, []jsondiff.Change, error) {
	was := w.state
	var err error
	w.state, err = w.State()
	changes, _ := jsondiff.Between(was, w.state)
	return cli.NewPayload(w.state), changes, err
}

func (w *walk) events(ctx context.Context, file *entityfile.Reader, at uint64) error {
	for w.Sequence() < at {
		e, err := file.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		err = w.Step(ctx, replay.StepEvent{
			Sequence: e.Sequence, RecordedAt: e.RecordedAt.UnixNano(), Type: e.EventType, Payload: e.Data,
		})
		if err != nil {
			return fmt.Errorf("event %d (%s): %w", e.Sequence, cli.Clean(e.EventType), err)
		}
		w.now = e.RecordedAt
		v := stepView{Sequence: e.Sequence, RecordedAt: e.RecordedAt, EventType: e.EventType, Payload: cli.NewPayload(e.Data)}
		if v.State, v.Changes, err = w.nextChanges(); err != nil {
			return err
		}
		if err := w.out.Line(v, v.text()); err != nil {
			return err
		}
	}
	return nil
}

// command runs a command on top of the replayed history.
func (w *walk) command(ctx context.Context, i int, name string, data []byte) error {
	if w.json && len(data) > 0 {
		var err error
		if data, err = jsontext.Canonical(data); err != nil { // nodes pass the canonical text to guests too
			return fmt.Errorf("--data: %w", err)
		}
	}
	made, err := w.Command(ctx, replay.StepCommand{Name: name, Payload: data, ID: fmt.Sprint("step-", i+1), Now: w.now.UnixNano(), Seed: uint64(i) + 1})
	if err != nil {
		return err
	}
	v := forkView{Command: name, Reply: cli.NewPayload(made.Reply), Deletes: made.Delete, Sequence: w.Sequence()}
	if made.Rejected {
		v.Reject = &rejection{string(made.Reject.Code), string(made.Reject.Message)}
	} else {
		for _, e := range made.Events {
			v.Events = append(v.Events, forkEvent{string(e.Type), cli.NewPayload(e.Payload)})
		}
		for _, s := range made.Sends {
			v.Sends = append(v.Sends, forkSend{string(s.EntityType), string(s.EntityID), string(s.Command), cli.NewPayload(s.Payload)})
		}
		for _, t := range made.Timers {
			v.Timers = append(v.Timers, forkTimer{string(t.Name), time.Unix(0, t.Due).UTC(), string(t.Command), t.Cancel})
		}
	}
	if v.State, v.Changes, err = w.nextChanges(); err != nil {
		return err
	}
	return w.out.Line(v, v.text())
}
