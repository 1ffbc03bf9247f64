package hostd

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// stateForms are the versions of a type's state.
type stateForms struct {
	version int         // current version; 0 means none
	word    uintptr     // the current Go type; see typeWord
	older   []migration // migrations by version, once linked
}

// migration converts a version of a state to the next version.
type migration struct {
	version int
	in      codec
	takes   uintptr // see typeWord
	gives   uintptr
	blank   func() unsafe.Pointer
	run     func(old unsafe.Pointer) unsafe.Pointer
}

// MigrateState declares an earlier version of a type's state. version is its
// number, starting at 1, Old is the Go type with which it was written, and up
// converts it to the next version. The current version is the version after the
// last migrated version, whether or not StateVersion sets it. States that were
// written before any version was declared have version 1. Leading versions that
// no entity has any more may be omitted.
//
//	hostd.MigrateState(drafts, 1, func(old DraftV1) Draft {
//		return Draft{Words: strings.Fields(old.Text)}
//	})
//
// up must be deterministic and must not fail. The stored state is not changed
// until a command changes the entity's state; until then it is migrated each
// time the entity is loaded.
//
// The states of an event-sourced type are stored in its snapshots. A snapshot
// is migrated only if the entity's first events were deleted, so that its state
// cannot be rebuilt from events, and only until the entity's next snapshot.
func MigrateState[S, Old, New any](t *Type[S], version int, up func(Old) New) {
	d := t.def
	if d.transient {
		panic("hostd: " + d.name + ": a transient type stores no state to migrate")
	}
	if version < 1 || version > maxEventVersion {
		panic("hostd: " + d.name + ": a version of a state must be between 1 and " + strconv.Itoa(maxEventVersion))
	}
	what := "state of version " + strconv.Itoa(version)
	for i := range d.stateForms.older {
		if d.stateForms.older[i].version == version {
			panic("hostd: " + d.name + ": " + what + " is migrated twice")
		}
	}
	d.stateForms.older = append(d.stateForms.older, migration{
		version: version, in: d.mustCodec(reflect.TypeFor[Old](), what), takes: typeWord(*new(Old)), gives: typeWord(*new(New)),
		blank: func() unsafe.Pointer { return unsafe.Pointer(new(Old)) },
		run: func(old unsafe.Pointer) unsafe.Pointer {
			made := up(*(*Old)(old))
			return unsafe.Pointer(&made)
		},
	})
}

// linkStates sorts the migrations and derives the current version from them. It
// may be called again.
func (d *definition) linkStates() {
	slices.SortFunc(d.stateForms.older, func(a, b migration) int { return cmp.Compare(a.version, b.version) })
	for i := range d.stateForms.older {
		m := &d.stateForms.older[i]
		what := "hostd: " + d.name + ": state of version " + strconv.Itoa(m.version)
		if i+1 < len(d.stateForms.older) {
			if after := &d.stateForms.older[i+1]; after.version != m.version+1 || after.takes != m.gives {
				panic(what + " must be migrated to the type of the next version")
			}
			continue
		}
		if m.gives != d.stateForms.word {
			panic(what + " must be migrated to the state's current type")
		}
		if d.stateForms.version != 0 && d.stateForms.version != m.version+1 {
			panic(what + " is the last version with a migration, but StateVersion is " + strconv.Itoa(d.stateForms.version))
		}
		d.stateForms.version = m.version + 1
	}
}

// migrate decodes a state of an earlier version and migrates it.
func (d *definition) migrate(version uint64, snapshot []byte) (unsafe.Pointer, abi.LoadStatus) {
	first := slices.IndexFunc(d.stateForms.older, func(m migration) bool { return uint64(m.version) == version })
	if first < 0 {
		return nil, abi.LoadUnreadable
	}
	state := d.stateForms.older[first].blank()
	if err := d.stateForms.older[first].in.Decode(snapshot, state); err != nil {
		return nil, abi.LoadUnreadable
	}
	for i := first; i < len(d.stateForms.older); i++ {
		state = d.stateForms.older[i].run(state)
	}
	return state, abi.LoadDone
}
