package modules

import (
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/modules/trial"
)

// digits is the digest of a module.
const digits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestTypeSettingsAreValidated(t *testing.T) {
	for key, values := range map[string]map[string]bool{
		"entity.session.passivate-after":  {"30m": true, "100ms": true, "never": true, "720h": true, "": true, "99ms": false, "721h": false, "30": false, "-1s": false, "soon": false},
		"entity.session.retain-events":    {"1": true, "1000000000": true, "all": true, "snapshots": true, "": true, "0": false, "-1": false, "1000000001": false, "none": false, "10s": false},
		"entity.session.retain-snapshots": {"1": true, "4": true, "": true, "0": false, "5": false, "all": false},
		"entity.session.suspended":        {"true": true, "": true, "false": false, "yes": false},
		"entity.session.validate":         {"on": true, "off": true, "": true, "true": false},
		"entity.Session.passivate-after":  {"30m": false, "": true},
		"entity.session.other":            {"30m": false},
		"entity.session":                  {"30m": false},
		"entity.passivate-after":          {"30m": false},
		"entity..passivate-after":         {"30m": false},
		"entity.session.value.currency":   {"EUR": true, "räksmörgås": true, "": true, "\xff": false, strings.Repeat("a", 1024): true, strings.Repeat("a", 1025): false},
		"entity.session.value.a.b-c_D":    {"1": true},
		"entity.session.value.":           {"1": false},
		"entity.session.value":            {"1": false},
		"entity.Session.value.a":          {"1": false},
		"entity.session.shadow":           {digits + " 10%": true, digits + " 100%": true, digits + " 0.01%": true, "": true, digits: false, digits + " 0%": false, digits + " 101%": false, digits + " 10": false, digits[2:] + " 10%": false, strings.ToUpper(digits) + " 10%": false, digits + "ab 10%": false, digits + " NaN%": false, digits + " -1%": false},
		"entity.session.max-open-runs":    {"1": true, "1000000000": true, "": true, "0": false, "-1": false, "many": false},
		"entity.session.run-time-limit":   {"1s": true, "87600h": true, "": true, "999ms": false, "87601h": false, "1": false, "never": false},
		"mine":                            {"30m": true, "anything": true},
	} {
		for value, ok := range values {
			if err := CheckSetting(key, value); (err == nil) != ok {
				t.Errorf("%s = %q: %v", key, value, err)
			}
		}
	}
	if entityType, name, ok := TypeSetting("entity.a-b.passivate-after"); !ok || entityType != "a-b" || name != passivateName {
		t.Error(entityType, name, ok)
	}
	var got overrides
	for name, value := range map[string]string{passivateName: "90s", retainEventsName: "20", retainSnapshotsName: "3", suspendedName: "true", validateName: "off", maxTimersName: "300", maxOpenRunsName: "7", runTimeLimitName: "48h"} {
		if err := got.set(name, value); err != nil {
			t.Error(err)
		}
	}
	want := overrides{90 * time.Second, entity.RetentionOverride{Records: 21, RecordsSet: true, Snapshots: 3}, true, 300, entity.RunLimits{Open: 7, Time: 48 * time.Hour}, "off", "", trial.ShadowSetting{}}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for value, records := range map[string]uint64{"all": 0, "snapshots": 1} {
		if err := got.set(retainEventsName, value); err != nil || got.retention.Records != records || !got.retention.RecordsSet {
			t.Errorf("%s: %+v %v", value, got, err)
		}
	}
}

// TestValidateSettingOverridesManifest checks that the setting takes precedence
// over the manifest, and that payloads are not validated if neither is set.
func TestValidateSettingOverridesManifest(t *testing.T) {
	s := newSettings()
	s.of.Store(&map[string]overrides{"off": {validate: "off"}, "on": {validate: "on"}})
	for entityType, want := range map[string][2]bool{"off": {false, false}, "on": {true, true}, "other": {false, true}} {
		if got := [2]bool{s.ValidatesPayloads(entityType, false), s.ValidatesPayloads(entityType, true)}; got != want {
			t.Errorf("%s: %v, want %v", entityType, got, want)
		}
	}
}
