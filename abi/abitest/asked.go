package abitest

import (
	"fmt"
	"math/rand/v2"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
)

// An entity that waits for the outcome of a send, such as a saga, has commands
// that make sense only after that send, because their handlers continue from
// state that the entity stored with it. Only the host sends these commands, and
// only as outcomes, so the suite must not send them at random. It learns their
// names from the guest's own output, in a trial run whose failures do not
// count, and delivers them only to entities that have made such a send.

// asked is a command that a node would deliver to an entity because the entity
// has requested it.
type asked struct {
	command string
	payload []byte
	given   bool // payload is exactly what a node sends
	source  abi.Source
	token   []byte // token of the send whose outcome the command delivers
}

// mostAsked limits the requested commands kept per entity; a node has no such
// limit.
const mostAsked = 16

// rejection is the payload of the OnReject command.
const rejection = `{"code":"refused","message":"by the conformance suite"}`

// recordSends records the commands that a stored output requests.
func (t *typeSuite) recordSends(e *entity, out *abi.Output, random *rand.Rand) {
	add := func(a asked) {
		if len(e.asked) < mostAsked && !out.Delete {
			e.asked = append(e.asked, a)
		}
	}
	for i := range out.Sends {
		to := &out.Sends[i]
		source := abi.Source{Kind: abi.SourceEntity, EntityType: append([]byte(nil), to.EntityType...), EntityID: append([]byte(nil), to.EntityID...)}
		if !to.WantsAnswer {
			continue
		}
		token := append([]byte(nil), to.Token...)
		t.outcomes[string(to.OnReply)], t.outcomes[string(to.OnReject)] = true, true
		if random.IntN(3) > 0 {
			add(asked{command: string(to.OnReply), source: source, token: token})
		} else {
			add(asked{command: string(to.OnReject), payload: []byte(rejection), given: true, source: source, token: token})
		}
	}
	for i := range out.Timers {
		timer := &out.Timers[i]
		if timer.Cancel || !t.def.IsInternal(string(timer.Command)) {
			continue
		}
		t.outcomes[string(timer.Command)] = true
		add(asked{command: string(timer.Command), payload: append([]byte(nil), timer.Payload...), given: true, source: abi.Source{Kind: abi.SourceTimer}})
	}
}

// next chooses the i-th command and its entity: a command that the entity has
// requested, or a command that callers and other entities may send at any time.
func (t *typeSuite) next(i int, names []manifest.Named, random *rand.Rand) (e *entity, a asked) {
	e = t.history[random.IntN(len(t.history))]
	if len(e.asked) > 0 && random.IntN(2) == 0 {
		a, e.asked = e.asked[0], e.asked[1:]
		if !a.given {
			a.payload = t.payload(a.command, random)
		}
		return e, a
	}
	free := make([]string, 0, len(names))
	for _, n := range names {
		if !t.outcomes[n.Name] {
			free = append(free, n.Name)
		}
	}
	if len(free) == 0 {
		for _, n := range names {
			free = append(free, n.Name)
		}
	}
	a.command = free[random.IntN(len(free))]
	if i < len(free) { // each of these commands at least once
		a.command = free[i]
	}
	a.source = t.sourceOf(a.command)
	a.payload = t.payload(a.command, random)
	return e, a
}

// sourceOf returns a sender for a command that the entity has not requested.
func (t *typeSuite) sourceOf(command string) abi.Source {
	if t.def.IsInternal(command) {
		return abi.Source{Kind: abi.SourceTimer}
	}
	return abi.Source{Kind: abi.SourceClient}
}

// scout finds out which commands are outcomes. It stops sending a command that
// fails, because the command may be an outcome that no entity has requested
// yet.
func (t *typeSuite) scout(names []manifest.Named) {
	t.outcomes = map[string]bool{}
	left := append([]manifest.Named(nil), names...)
	for range names {
		failed := ""
		random := t.random(uint64(t.typ)<<8 + 9)
		err := t.with(t.options.Seed, func(g Instance) error {
			if err := t.entities(g, random); err != nil {
				return err
			}
			for i := range t.options.Commands * t.options.Entities {
				if t.ctx.Err() != nil {
					return nil
				}
				e, a := t.next(i, left, random)
				if err := t.command(g, e, a, random); err != nil {
					failed = a.command
					return err
				}
			}
			return nil
		})
		if err == nil || failed == "" || len(left) == 1 {
			break
		}
		kept := left[:0]
		for _, n := range left {
			if n.Name != failed {
				kept = append(kept, n)
			}
		}
		left = kept
	}
	t.history = nil
}

// entities creates the entities of a run.
func (t *typeSuite) entities(g Instance, random *rand.Rand) error {
	t.history = nil
	for i := range t.options.Entities {
		e := &entity{id: fmt.Sprintf("entity-%d", i), handle: uint64(i)}
		if err := t.load(g, e, e.handle, mark{}, random); err != nil {
			return err
		}
		t.history = append(t.history, e)
	}
	return nil
}
