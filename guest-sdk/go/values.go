package hostd

import (
	"errors"
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// EncodeEvent returns the type and payload of an event as Emit writes them, for
// tests and tools. For a Go type that is upcast, it encodes the earlier
// version. The type must already belong to a Guest or to a test of hostdtest.
func (t *Type[S]) EncodeEvent(value any) (name string, payload []byte, err error) {
	if e := t.def.eventOf(typeWord(value)); e != nil {
		payload, err = e.append(nil, value)
		return e.name, payload, err
	}
	for i := range t.def.upcasts.list {
		if u := &t.def.upcasts.list[i]; u.takes == typeWord(value) {
			payload, err = t.def.encode(nil, value)
			return u.stored, payload, err
		}
	}
	return "", nil, errors.New("hostd: not an event of " + t.def.name)
}

// Encode encodes a command, query, reply or state in the type's encoding.
func (t *Type[S]) Encode(value any) ([]byte, error) { return t.def.encode(nil, value) }

// DecodeState decodes a snapshot.
func (t *Type[S]) DecodeState(snapshot []byte) (S, error) {
	var state S
	err := t.def.state.Decode(snapshot, unsafe.Pointer(&state))
	return state, err
}

// IsDurable reports whether the type was made with Durable.
func (t *Type[S]) IsDurable() bool { return t.def.durable && !t.def.transient }

// IsInternal reports whether the type has an Internal command with the given
// name.
func (t *Type[S]) IsInternal(name string) bool {
	c := t.def.command([]byte(name))
	return c != nil && c.internal
}

// Name returns the type's name.
func (t *Type[S]) Name() string { return t.def.name }

// SendsTo reports whether entities of the type may send to entities of
// entityType.
func (t *Type[S]) SendsTo(entityType string) bool {
	return t.def.sends == nil || abi.MatchesType(*t.def.sends, entityType)
}

// TakesFrom reports whether entities of the type accept messages from entities
// of entityType.
func (t *Type[S]) TakesFrom(entityType string) bool {
	return t.def.accepts == nil || abi.MatchesType(*t.def.accepts, entityType)
}

// IsWorkflow reports whether the type was made with Workflow.
func (t *Type[S]) IsWorkflow() bool { return t.def.workflow }

// IsTransient reports whether the type was made with Transient.
func (t *Type[S]) IsTransient() bool { return t.def.transient }
