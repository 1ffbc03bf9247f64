package cases

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/jsondiff"
)

// check compares the result of a call with the expected one.
func (r *run) check(s *step, out *abi.Output, state []byte) error {
	w := &s.want
	if !r.checkRejection(s, out) {
		return nil // any other difference follows from it
	}
	if w.hasEvents {
		if err := r.checkEvents(w.events, out.Events); err != nil {
			return err
		}
	}
	if w.reply != nil {
		if err := r.compare("the reply", w.reply, out.Reply); err != nil {
			return err
		}
	}
	if w.hasSends {
		if err := r.checkSends(w.sends, out.Sends); err != nil {
			return err
		}
	}
	if w.hasTimers {
		if err := r.checkTimers(w.timers, out.Timers); err != nil {
			return err
		}
	}
	if out.Delete != w.deleted && !out.Rejected {
		r.fail("%s", map[bool]string{true: "the entity is not deleted", false: "the entity is deleted"}[w.deleted])
	}
	if w.state != nil {
		return r.compare("the state", w.state, state)
	}
	return nil
}

// checkRejection checks whether the call was rejected as expected.
func (r *run) checkRejection(s *step, out *abi.Output) bool {
	code, message := cli.Clean(string(out.Reject.Code)), cli.Clean(string(out.Reject.Message))
	switch w := &s.want; {
	case out.Rejected && w.rejected == "":
		r.fail("%s was rejected: %s: %s", s.name, code, message)
		return false
	case !out.Rejected && w.rejected != "":
		r.fail("%s was not rejected, want %s", s.name, w.rejected)
		return false
	case !out.Rejected:
	case string(out.Reject.Code) != w.rejected:
		r.fail("%s was rejected with %s (%s), want %s", s.name, code, message, w.rejected)
	case w.message != "" && string(out.Reject.Message) != w.message:
		r.fail("the rejection says %q, want %q", out.Reject.Message, w.message)
	}
	return true
}

func (r *run) checkEvents(want []event, got []abi.Event) error {
	types := func(n int, name func(int) string) string {
		var out []string
		for i := range n {
			out = append(out, cli.Clean(name(i)))
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	wanted := types(len(want), func(i int) string { return want[i].name })
	if made := types(len(got), func(i int) string { return string(got[i].Type) }); made != wanted {
		r.fail("the events are %s, want %s", made, wanted)
		return nil
	}
	for i, w := range want {
		what := fmt.Sprintf("event %d, %s,", i+1, w.name)
		if err := r.compare(what, w.payload, got[i].Payload); err != nil {
			return err
		}
		var tags []string
		for _, tag := range got[i].Tags {
			tags = append(tags, string(tag))
		}
		if w.tagged && !slices.Equal(tags, w.tags) {
			r.fail("%s has the tags %q, want %q", what, tags, w.tags)
		}
	}
	return nil
}

func (r *run) checkSends(want []send, got []abi.Send) error {
	if len(want) != len(got) {
		var made []string
		for _, g := range got {
			made = append(made, cli.Clean(fmt.Sprintf("%s %s %s", g.EntityType, g.EntityID, g.Command)))
		}
		r.fail("there are %d messages, want %d: %s", len(got), len(want), strings.Join(made, ", "))
		return nil
	}
	for i, w := range want {
		g := got[i]
		made := [...]string{string(g.EntityType), string(g.EntityID), string(g.Command), string(g.OnReply), string(g.OnReject)}
		if wanted := [...]string{w.to.entityType, w.to.id, w.command, w.onReply, w.onReject}; made != wanted {
			r.fail("message %d is %q, want %q", i+1, made, wanted)
			continue
		}
		if err := r.compare(fmt.Sprintf("the payload of message %d", i+1), w.payload, g.Payload); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) checkTimers(want []timer, got []abi.Timer) error {
	if len(want) != len(got) {
		var made []string
		for _, g := range got {
			made = append(made, cli.Clean(string(g.Name)))
		}
		r.fail("%d timers are set or cancelled, want %d: %s", len(got), len(want), strings.Join(made, ", "))
		return nil
	}
	for i, w := range want {
		g := got[i]
		in := time.Duration(g.Due - r.now)
		switch {
		case string(g.Name) != w.name || g.Cancel != w.cancel:
			r.fail("timer %d is %s (cancelled: %v), want %s (cancelled: %v)", i+1, cli.Clean(string(g.Name)), g.Cancel, w.name, w.cancel)
			continue
		case w.command != "" && string(g.Command) != w.command:
			r.fail("timer %s has the command %s, want %s", w.name, cli.Clean(string(g.Command)), w.command)
		case w.hasIn && in != w.in:
			r.fail("timer %s is due in %s, want %s", w.name, in, w.in)
		case w.schedule != "" && string(g.Expression) != w.schedule:
			r.fail("timer %s has the schedule %q, want %q", w.name, g.Expression, w.schedule)
		}
		if w.payload != nil {
			if err := r.compare("the payload of timer "+w.name, w.payload, g.Payload); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare compares a payload with the expected payload; a nil want expects
// no payload or an empty payload.
func (r *run) compare(what string, want *yaml.Node, got []byte) error {
	wanted, err := r.payload(want, r.e.about.Encoding)
	if err != nil {
		return err
	}
	if (want == nil || string(wanted) == "null") && (len(got) == 0 || string(got) == "{}" || string(got) == "null") {
		return nil
	}
	if text := differ(wanted, got, r.e.about.Encoding == manifest.JSON); text != "" {
		r.fail("%s is not as expected\n%s", what, text)
	}
	return nil
}

// differ describes, in lines, how bytes differ from the expected bytes;
// empty if they are equal. If alike is set, JSON texts with the same value
// do not differ.
func differ(want, got []byte, alike bool) string {
	if bytes.Equal(want, got) {
		return ""
	}
	changes, comparable := jsondiff.Between(want, got)
	switch {
	case comparable && len(changes) == 0 && alike:
		return ""
	case len(changes) > 0:
		var lines []string
		for _, c := range changes {
			lines = append(lines, fmt.Sprintf("  %s: want %s, got %s", c.At(), c.Before(), c.After()))
		}
		return strings.Join(lines, "\n")
	}
	return fmt.Sprintf("  want %s\n  got  %s", show(want), show(got))
}

// maxShown limits how many bytes of a non-JSON payload are shown.
const maxShown = 400

// show formats a payload for people.
func show(payload []byte) string {
	if len(payload) == 0 {
		return "nothing"
	}
	text := cli.NewPayload(payload).Text()
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "..."
	}
	return text
}
