package hostd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

type (
	draft1 struct{ Text string }
	draft2 struct{ Words []string }
	draft3 struct {
		Words []string
		Count int64
	}
	wrote struct{ Word string }
)

func upDraft1(old draft1) draft2 { return draft2{strings.Fields(old.Text)} }
func upDraft2(old draft2) draft3 { return draft3{old.Words, int64(len(old.Words))} }

// drafts has a state with three versions, declared in any order.
func drafts(options ...hostd.Option) *hostd.Type[draft3] {
	d := hostd.Durable[draft3]("draft", hostd.JSON, options...)
	hostd.MigrateState(d, 2, upDraft2)
	hostd.MigrateState(d, 1, upDraft1)
	hostd.Command(d, "write", func(_ *hostd.Context, s *draft3, w wrote) (hostd.None, error) {
		if w.Word == "" {
			return hostd.None{}, hostd.Reject("empty", "no word")
		}
		s.Words, s.Count = append(s.Words, w.Word), s.Count+1
		return hostd.None{}, nil
	})
	return d
}

// TestStatesAreMigrated checks that a state of each version is migrated to the
// current version, and that the first command that changes it stores it in the
// current version.
func TestStatesAreMigrated(t *testing.T) {
	for version, old := range map[int]any{1: draft1{"a b"}, 2: draft2{[]string{"a", "b"}}, 3: draft3{[]string{"a", "b"}, 2}, 0: draft3{[]string{"a", "b"}, 2}} {
		d := hostdtest.New(t, drafts()).GivenState(version, old)
		d.Then(draft3{[]string{"a", "b"}, 2})
		d.When("write", wrote{}).Rejected("empty")
		d.Then(draft3{[]string{"a", "b"}, 2})
		d.When("write", wrote{"c"})
		d.Then(draft3{[]string{"a", "b", "c"}, 3})
	}
}

// TestManifestOfMigratedStates checks that the manifest has the current version
// and the earlier versions with their schemas, no matter how often a module is
// created from the type.
func TestManifestOfMigratedStates(t *testing.T) {
	typ := drafts()
	for range 2 {
		m, err := manifest.Parse(hostd.NewGuest("shop", "", typ).Describe())
		if err == nil {
			err = m.CheckSchemas()
		}
		if err != nil {
			t.Fatal(err)
		}
		about := m.EntityTypes[0]
		var versions []int
		for _, s := range about.ReadsStates {
			if versions = append(versions, s.Version); s.Schema == nil {
				t.Errorf("version %d has no schema", s.Version)
			}
		}
		if about.StateVersion != 3 || !slices.Equal(versions, []int{1, 2}) {
			t.Errorf("version %d, and %v are read", about.StateVersion, versions)
		}
	}
}

// TestUnreadableStatesAreRejected checks that a version without a migration is rejected, and
// so is a state that does not match its version.
func TestUnreadableStatesAreRejected(t *testing.T) {
	g := hostd.NewGuest("shop", "", drafts())
	for _, tt := range []struct {
		version uint64
		state   string
		want    abi.LoadStatus
	}{{0, `{"Words":["a"],"Count":1}`, abi.LoadDone}, {3, `{"Words":["a"],"Count":1}`, abi.LoadDone}, {1, `{"Text":"a"}`, abi.LoadDone}, {4, `{}`, abi.LoadUnreadable}, {1, `{"Text":7}`, abi.LoadUnreadable}, {2, `none`, abi.LoadUnreadable}} {
		input := abi.AppendSnapshot(nil, []byte(tt.state))
		if tt.version != 0 {
			input = abi.AppendStateVersion(input, tt.version)
		}
		if got := g.Load(0, 1, input); got != tt.want {
			t.Errorf("%s of version %d: %v, want %v", tt.state, tt.version, got, tt.want)
		}
	}
}

// TestMigrationsMustReachCurrentVersion checks that declaring a type fails unless its
// migrations lead from each declared version to the current state.
func TestMigrationsMustReachCurrentVersion(t *testing.T) {
	type T = hostd.Type[draft3]
	for says, declare := range map[string]func(d *T){
		"a version of a state must be between 1 and 1000": func(d *T) { hostd.MigrateState(d, 0, upDraft2) },
		"version 2 is migrated twice": func(d *T) {
			hostd.MigrateState(d, 2, upDraft2)
			hostd.MigrateState(d, 2, upDraft2)
		},
		"version 1 must be migrated to the state's current type": func(d *T) { hostd.MigrateState(d, 1, upDraft1) },
		"version 1 must be migrated to the type of the next version": func(d *T) {
			hostd.MigrateState(d, 1, upDraft1)
			hostd.MigrateState(d, 3, upDraft2)
		},
	} {
		d := hostd.Durable[draft3]("draft", hostd.JSON)
		got := panicked(func() {
			declare(d)
			hostd.NewGuest("shop", "", d)
		})
		if !strings.Contains(got, says) {
			t.Errorf("panicked with %q, want %q", got, says)
		}
	}
	if got := panicked(func() { hostd.NewGuest("shop", "", drafts(hostd.StateVersion(7))) }); !strings.Contains(got, "StateVersion is 7") {
		t.Errorf("panicked with %q", got)
	}
	if got := panicked(func() { hostd.NewGuest("shop", "", drafts(hostd.StateVersion(3))) }); got != "" {
		t.Errorf("panicked with %q", got)
	}
	if got := panicked(func() { hostd.MigrateState(hostd.Transient[draft3]("draft", hostd.JSON), 2, upDraft2) }); !strings.Contains(got, "stores no state to migrate") {
		t.Errorf("panicked with %q", fmt.Sprint(got))
	}
}

type counted struct{ N int }

type counterV1 struct{ Sum int }

type counter struct{ Total int }

// TestSnapshotsAreMigrated checks that the state of an event-sourced type is
// restored from a snapshot of an earlier version and the events after it.
func TestSnapshotsAreMigrated(t *testing.T) {
	c := hostd.Entity[counter]("counter", hostd.JSON)
	hostd.MigrateState(c, 1, func(old counterV1) counter { return counter{old.Sum} })
	hostd.Event(c, "counted", func(s *counter, e counted) { s.Total += e.N })
	hostd.Command(c, "count", func(x *hostd.Context, _ *counter, e counted) (hostd.None, error) {
		x.Emit(e)
		return hostd.None{}, nil
	})
	d := hostdtest.New(t, c).GivenState(1, counterV1{40}).Given(counted{1})
	d.Then(counter{41})
	d.When("count", counted{1})
	d.Then(counter{42})
	m, err := manifest.Parse(hostd.NewGuest("shop", "", c).Describe())
	if err != nil {
		t.Fatal(err)
	}
	if about := m.EntityTypes[0]; about.StateVersion != 2 || len(about.ReadsStates) != 1 || about.ReadsStates[0].Version != 1 {
		t.Errorf("the manifest says %+v", about)
	}
}
