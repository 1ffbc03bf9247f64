package modules

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Settings with keys of the form entity.TYPE.NAME apply to an entity type and
// override its module's manifest. The names:
//
//	passivate-after    how long an entity may be idle before it leaves memory,
//	                   such as 90s or 30m, or never
//	retain-events      how many of the latest events are kept when a snapshot is
//	                   taken, or snapshots or all
//	retain-snapshots   how many snapshots of an entity are kept
//	suspended          true: commands of callers are rejected, messages and timers
//	                   wait
//	validate           on or off: whether payloads are validated by the schemas
//	require-verify     off, sample or all: which entities must be verified with a
//	                   module before it serves
//	shadow             DIGEST PERCENT%: a shadow module that also decides a share
//	                   of the commands, so that its decisions are compared
//	max-timers         how many timers an entity may have, 10,000 unless set
//	max-open-runs      how many runs of a workflow type may be open in a shard
//	run-time-limit     how long a run of a workflow type may stay open
//	value.NAME         a value that guests of the type read by its name
const (
	settingPrefix       = "entity."
	passivateName       = "passivate-after"
	retainEventsName    = "retain-events"
	retainSnapshotsName = "retain-snapshots"
	suspendedName       = "suspended"
	validateName        = "validate"
	requireVerifyName   = "require-verify"
	shadowName          = "shadow"
	maxTimersName       = "max-timers"
	maxOpenRunsName     = "max-open-runs"
	runTimeLimitName    = "run-time-limit"
	valuePrefix         = "value."

	// leastTimers and mostTimers bound max-timers.
	leastTimers = 256
	mostTimers  = 1_000_000

	// mostOpenRuns bounds max-open-runs; minRunTime and maxRunTime bound
	// run-time-limit.
	mostOpenRuns = 1_000_000_000
	minRunTime   = time.Second
	maxRunTime   = 10 * 365 * 24 * time.Hour

	neverIdle       = "never"
	retainAll       = "all"
	retainSnapshots = "snapshots"
	// shortestIdle is the resolution with which an executor tracks the last use of
	// an entity.
	shortestIdle = 100 * time.Millisecond
)

// overrides are the settings of one entity type.
type overrides struct {
	idle      time.Duration // 0 if not set; negative means never
	retention entity.RetentionOverride
	suspended bool
	timers    int // 0 if not set
	runs      entity.RunLimits
	validate  string // "on", "off" or "" if not set
	values    string // values that guests read, encoded by abi.AppendSetting
	shadow    trial.ShadowSetting
}

// set parses and stores one setting.
func (o *overrides) set(name, value string) (err error) {
	if named, ok := strings.CutPrefix(name, valuePrefix); ok {
		return o.setValue(named, value)
	}
	switch name {
	case passivateName:
		o.idle, err = parseIdle(value)
	case retainEventsName:
		o.retention.Records, err = parseRetention(value)
		o.retention.RecordsSet = err == nil
	case retainSnapshotsName:
		o.retention.Snapshots, err = parseCount(value, manifest.MaxRetainSnapshots)
	case suspendedName:
		if o.suspended = value == "true"; !o.suspended {
			err = fmt.Errorf("%.32q is not true; an empty value removes the setting", value)
		}
	case maxTimersName:
		if o.timers, err = parseCount(value, mostTimers); err == nil && o.timers < leastTimers {
			o.timers, err = 0, fmt.Errorf("%.32q is not a number between %d and %d", value, leastTimers, mostTimers)
		}
	case maxOpenRunsName:
		o.runs.Open, err = parseCount(value, mostOpenRuns)
	case runTimeLimitName:
		if o.runs.Time, err = time.ParseDuration(value); err != nil || o.runs.Time < minRunTime || o.runs.Time > maxRunTime {
			o.runs.Time, err = 0, fmt.Errorf("%.32q is not a duration between %s and %s", value, minRunTime, maxRunTime)
		}
	case validateName:
		if o.validate = value; value != "on" && value != "off" {
			err = fmt.Errorf("%.32q is neither on nor off", value)
		}
	case requireVerifyName: // not stored here: requiredBy reads it when a module is activated
		if !VerifyRequired(value).IsValid() {
			err = fmt.Errorf("%.32q is not off, sample or all", value)
		}
	case shadowName:
		o.shadow, err = trial.ParseShadowSetting(value)
	default:
		err = fmt.Errorf("keys that begin with %s are %sTYPE.%s, %s, %s, %s, %s, %s, %s, %s, %s, %s and %sNAME", settingPrefix, settingPrefix, passivateName, retainEventsName, retainSnapshotsName, suspendedName, validateName, requireVerifyName, shadowName, maxTimersName, maxOpenRunsName, runTimeLimitName, valuePrefix)
	}
	return err
}

// Bounds of a value that guests read, in bytes.
const (
	maxValueName  = 64
	maxValueBytes = 1 << 10
)

// setValue stores a value that guests read.
func (o *overrides) setValue(name, value string) error {
	switch {
	case name == "" || len(name) > maxValueName:
		return fmt.Errorf("the name of a value must have 1 to %d bytes, got %d", maxValueName, len(name))
	case len(value) > maxValueBytes || !utf8.ValidString(value):
		return fmt.Errorf("a value must be UTF-8 of at most %d bytes, got %d bytes", maxValueBytes, len(value))
	}
	values := abi.AppendSetting([]byte(o.values), name, value)
	if len(values) > abi.MaxSettingsBytes {
		return fmt.Errorf("the values of an entity type have %d bytes in total, including names, at most %d are allowed", len(values), abi.MaxSettingsBytes)
	}
	o.values = string(values)
	return nil
}

// Settings are the settings of entity types that this node has applied.
type Settings struct {
	// Shadows are the watches of the shadow settings.
	Shadows *trial.Watches

	of        atomic.Pointer[map[string]overrides]
	executors executors // notified after a change; may be nil
}

func newSettings() *Settings {
	t := &Settings{Shadows: trial.NewWatches()}
	t.of.Store(&map[string]overrides{})
	return t
}

// IdleAfter returns the idle time set for a type; negative means never. ok is
// false if none is set.
func (t *Settings) IdleAfter(entityType string) (time.Duration, bool) {
	d := (*t.of.Load())[entityType].idle
	return d, d != 0
}

// RetentionOverride returns the retention set for a type's entities.
func (t *Settings) RetentionOverride(entityType string) entity.RetentionOverride {
	return (*t.of.Load())[entityType].retention
}

// IsSuspended reports whether a type is suspended.
func (t *Settings) IsSuspended(entityType string) bool {
	return (*t.of.Load())[entityType].suspended
}

// MaxTimers returns how many timers an entity of a type may have.
func (t *Settings) MaxTimers(entityType string) int {
	if n := (*t.of.Load())[entityType].timers; n > 0 {
		return n
	}
	return entity.DefaultMaxTimers
}

// RunLimits returns the limits of a workflow type's runs.
func (t *Settings) RunLimits(entityType string) entity.RunLimits {
	return (*t.of.Load())[entityType].runs
}

// ValidatesPayloads reports whether a type's payloads are validated. checked is the
// default of its module.
func (t *Settings) ValidatesPayloads(entityType string, checked bool) bool {
	switch (*t.of.Load())[entityType].validate {
	case "on":
		return true
	case "off":
		return false
	}
	return checked
}

// Values returns the values that guests of a type read, encoded as in a frame.
func (t *Settings) Values(entityType string) string {
	return (*t.of.Load())[entityType].values
}

// learn applies the settings of a view.
func (t *Settings) learn(view *meta.View) {
	next := make(map[string]overrides)
	for _, key := range view.SettingKeys() {
		entityType, name, ok := TypeSetting(key)
		if !ok {
			continue
		}
		if s, ok := view.Setting(key); ok {
			// Ignore a setting that only a newer release knows.
			if o := next[entityType]; o.set(name, string(s.Value)) == nil {
				if name == shadowName {
					o.shadow.Revision = s.Revision // if the setting is stored again, the comparison restarts
				}
				next[entityType] = o
			}
		}
	}
	if !maps.Equal(next, *t.of.Load()) {
		t.of.Store(&next)
		wishes := map[string]trial.ShadowSetting{}
		for entityType, o := range next {
			if o.shadow != (trial.ShadowSetting{}) {
				wishes[entityType] = o.shadow
			}
		}
		t.Shadows.Learn(wishes)
		if t.executors != nil {
			t.executors.IdleTimesChanged()
		}
	}
}

func parseIdle(text string) (time.Duration, error) {
	if text == neverIdle {
		return -1, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < shortestIdle || d > manifest.MaxPassivate {
		return 0, fmt.Errorf("%q is neither a duration between %v and %v, such as 90s or 30m, nor %q", text, shortestIdle, manifest.MaxPassivate, neverIdle)
	}
	return d, nil
}

// parseRetention returns a retention in the form that snapshots carry.
func parseRetention(text string) (uint64, error) {
	switch text {
	case retainAll:
		return manifest.RetainAll.Snapshots(), nil
	case retainSnapshots:
		return manifest.RetainSnapshots.Snapshots(), nil
	}
	n, err := parseCount(text, manifest.MaxRetain)
	if err != nil {
		return 0, fmt.Errorf("%w, or %q or %q", err, retainAll, retainSnapshots)
	}
	return manifest.Retention(n).Snapshots(), nil
}

func parseCount(text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%.32q is not a number from 1 to %d", text, most)
	}
	return n, nil
}

// CheckSetting returns an error if a setting of entity types or modules is
// invalid. An empty value deletes a setting and is always valid.
func CheckSetting(key, value string) error {
	if value == "" {
		return nil
	}
	if !strings.HasPrefix(key, settingPrefix) {
		return meta.CheckModuleSetting(key, value)
	}
	entityType, name, ok := TypeSetting(key)
	if !ok || (sharding.EntityID{Type: entityType, ID: "x"}).Validate() != nil {
		name = "" // "" makes the key invalid
	}
	return new(overrides).set(name, value)
}

// CheckShadow returns an error if the module of a shadow setting is not in the
// cluster, does not have the type, or already serves it.
func CheckShadow(view *meta.View, key, value string) error {
	entityType, name, ok := TypeSetting(key)
	if !ok || value == "" || name != shadowName {
		return nil
	}
	wish, err := trial.ParseShadowSetting(value)
	if err != nil {
		return err
	}
	switch m, stored := view.Module(meta.Digest(wish.Digest)); {
	case !stored:
		return fmt.Errorf("the cluster has no module %s: push it with --no-activate first", wish.Digest)
	case !slices.Contains(m.EntityTypes, entityType):
		return fmt.Errorf("module %s does not serve entity type %q", wish.Digest, entityType)
	}
	if b, bound := view.Activation(entityType); bound && b.Digest == meta.Digest(wish.Digest) {
		return fmt.Errorf("module %s already serves %s, so there is nothing to compare", wish.Digest, entityType)
	}
	return nil
}

// CheckRoom returns an error if a value that guests read does not fit next to
// the type's other values. Two concurrent changes may both pass the check and
// together exceed the limit; then guests do not see the last values in the
// order of their names.
func CheckRoom(view *meta.View, key, value string) error {
	entityType, name, ok := TypeSetting(key)
	if !ok || value == "" || !strings.HasPrefix(name, valuePrefix) {
		return nil
	}
	var o overrides
	for _, other := range view.SettingKeys() {
		of, named, _ := TypeSetting(other)
		if s, ok := view.Setting(other); ok && other != key && of == entityType && strings.HasPrefix(named, valuePrefix) {
			if err := o.set(named, string(s.Value)); err != nil {
				return err
			}
		}
	}
	return o.set(name, value)
}

// run keeps the settings in sync with the metadata until ctx ends.
func (t *Settings) run(ctx context.Context, m *cluster.Metadata) {
	var seen uint64
	for {
		changed := m.Changed()
		if view := m.View(); view.SettingRevision() != seen {
			t.learn(view)
			seen = view.SettingRevision()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// TypeSetting splits the key entity.TYPE.NAME.
func TypeSetting(key string) (entityType, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, settingPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
}
