package manifest

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/abi"
)

// Validate checks a manifest and returns an *Error for its first fault.
func (m *Manifest) Validate() error {
	if m.ABI != abi.Version {
		return &Error{"abi", fmt.Sprintf("is %d, but this node supports %d", m.ABI, abi.Version)}
	}
	if err := text("name", m.Name, MaxNameBytes); err != nil {
		return err
	}
	if m.Version != "" {
		if err := text("version", m.Version, MaxVersionBytes); err != nil {
			return err
		}
	}
	if len(m.EntityTypes) == 0 {
		return &Error{"entityTypes", "is empty"}
	}
	if len(m.EntityTypes) > MaxEntityTypes {
		return &Error{"entityTypes", fmt.Sprintf("%d entries, limit %d", len(m.EntityTypes), MaxEntityTypes)}
	}
	seen := make(map[string]bool, len(m.EntityTypes))
	for i := range m.EntityTypes {
		t := &m.EntityTypes[i]
		path := fmt.Sprintf("entityTypes[%d]", i)
		if err := t.validate(path); err != nil {
			return err
		}
		if seen[t.Name] {
			return &Error{path + ".name", "is duplicated"}
		}
		seen[t.Name] = true
	}
	return nil
}

func (t *EntityType) validate(path string) error {
	if err := abi.ValidateEntityType(t.Name); err != nil {
		return &Error{path + ".name", reason(err)}
	}
	if !t.Kind.IsReplayed() && t.Kind != DurableState && t.Kind != Transient {
		return &Error{path + ".kind", fmt.Sprintf("is not one of %q, %q, %q and %q", EventSourced, DurableState, Transient, Workflow)}
	}
	if t.Kind == Workflow {
		if err := t.validateWorkflow(path); err != nil {
			return err
		}
	}
	if t.Kind == Transient && t.AlwaysOn && !t.Singleton {
		return &Error{path + "." + t.alwaysOnName(), "is not allowed for a transient type, because its entities are not stored"}
	}
	if t.Encoding != JSON && t.Encoding != Bytes {
		return &Error{path + ".encoding", fmt.Sprintf("is neither %q nor %q", JSON, Bytes)}
	}
	if err := distinct(path+".commands", "name", len(t.Commands), func(i int) string { return t.Commands[i].Name }); err != nil {
		return err
	}
	for i, c := range t.Commands {
		if err := distinct(fmt.Sprintf("%s.commands[%d].rejections", path, i), "", len(c.Rejections), func(j int) string { return c.Rejections[j] }); err != nil {
			return err
		}
	}
	if err := distinct(path+".queries", "name", len(t.Queries), func(i int) string { return t.Queries[i].Name }); err != nil {
		return err
	}
	if err := distinct(path+".events", "type", len(t.Events), func(i int) string { return t.Events[i].Type }); err != nil {
		return err
	}
	for i, e := range t.Events {
		if e.UpcastTo != "" && !slices.ContainsFunc(t.Events, func(to EventType) bool { return to.Type == e.UpcastTo && to.UpcastTo == "" }) {
			return &Error{fmt.Sprintf("%s.events[%d].upcastTo", path, i), "is not a listed event of the type in its current form"}
		}
	}
	if t.SnapshotEvery < 0 || t.SnapshotEvery > MaxSnapshotEvery {
		return &Error{path + ".snapshotEvery", fmt.Sprintf("is not between 0 and %d", MaxSnapshotEvery)}
	}
	if t.PassivateAfter < 0 || t.PassivateAfter > MaxPassivate {
		return &Error{path + ".passivateAfter", fmt.Sprintf("is not between 0 and %s", MaxPassivate)}
	}
	if t.RetainSnapshots < 0 || t.RetainSnapshots > MaxRetainSnapshots {
		return &Error{path + ".retainSnapshots", fmt.Sprintf("is not between 0 and %d", MaxRetainSnapshots)}
	}
	if err := typePatterns(path+".sends", t.Sends); err != nil {
		return err
	}
	if err := typePatterns(path+".acceptsFrom", t.AcceptsFrom); err != nil {
		return err
	}
	if t.StateVersion < 0 || t.StateVersion > MaxStateVersion {
		return &Error{path + ".stateVersion", fmt.Sprintf("is not between 0 and %d", MaxStateVersion)}
	}
	if err := t.validateStates(path + ".readsStates"); err != nil {
		return err
	}
	return t.ShardKey.validate(path + ".shardKey")
}

// validateWorkflow rejects members that a workflow type must not have, because
// its runs have no snapshots and keep all their events.
func (t *EntityType) validateWorkflow(path string) error {
	for _, m := range []struct {
		name string
		set  bool
	}{
		{"snapshotEvery", t.SnapshotEvery != 0}, {"retainSnapshots", t.RetainSnapshots != 0}, {"retainEvents", t.RetainEvents != RetainAll},
		{t.alwaysOnName(), t.AlwaysOn}, {"singleton", t.Singleton}, {"stateVersion", t.StateVersion != 0}, {"readsStates", t.ReadsStates != nil},
	} {
		if m.set {
			return &Error{path + "." + m.name, "is not allowed for a workflow type"}
		}
	}
	return nil
}

// typePatterns checks the length of a list of type patterns, and each pattern,
// which may occur only once.
func typePatterns(path string, list []string) error {
	if len(list) > abi.MaxTypePatterns {
		return &Error{path, fmt.Sprintf("%d entries, limit %d", len(list), abi.MaxTypePatterns)}
	}
	for i, p := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if err := abi.ValidateTypePattern(p); err != nil {
			return &Error{at, reason(err)}
		}
		if slices.Contains(list[:i], p) {
			return &Error{at, "is duplicated"}
		}
	}
	return nil
}

func (k ShardKey) validate(path string) error {
	if k.Group != "" {
		if err := abi.ValidateEntityType(k.Group); err != nil {
			return &Error{path + ".group", reason(err)}
		}
	}
	if k.Until != "" {
		return text(path+".until", k.Until, MaxUntilBytes)
	}
	return nil
}

// distinct checks the length of a list of names, and each name, which may occur
// only once. member is empty if the items of the list are the names themselves.
func distinct(path, member string, count int, name func(int) string) error {
	if count > MaxNames {
		return &Error{path, fmt.Sprintf("%d entries, limit %d", count, MaxNames)}
	}
	seen := make(map[string]bool, count)
	for i := range count {
		at := fmt.Sprintf("%s[%d]", path, i)
		if member != "" {
			at += "." + member
		}
		if err := abi.ValidateName(at, name(i)); err != nil {
			return &Error{at, reason(err)}
		}
		if seen[name(i)] {
			return &Error{at, "is duplicated"}
		}
		seen[name(i)] = true
	}
	return nil
}

func text(path, value string, limit int) error {
	if err := abi.ValidateName(path, value); err != nil {
		return &Error{path, reason(err)}
	}
	if len(value) > limit {
		return &Error{path, fmt.Sprintf("%d bytes, limit %d", len(value), limit)}
	}
	return nil
}

func reason(err error) string {
	if name, ok := err.(*abi.NameError); ok {
		return name.Reason
	}
	return err.Error()
}
