package host

import (
	"testing"
	"time"
)

func TestTypeSettings(t *testing.T) {
	for key, values := range map[string]map[string]bool{
		"entity.session.passivate-after": {"30m": true, "100ms": true, "never": true, "720h": true, "": true, "99ms": false, "721h": false, "30": false, "-1s": false, "soon": false},
		"entity.Session.passivate-after": {"30m": false, "": true},
		"entity.session.other":           {"30m": false},
		"entity.passivate-after":         {"30m": false},
		"entity..passivate-after":        {"30m": false},
		"mine":                           {"30m": true, "anything": true},
	} {
		for value, ok := range values {
			if err := checkSetting(key, value); (err == nil) != ok {
				t.Errorf("%s = %q: %v", key, value, err)
			}
		}
	}
	if d, err := parseIdle("90s"); err != nil || d != 90*time.Second {
		t.Error(d, err)
	}
	if entityType, ok := idleType("entity.a-b.passivate-after"); !ok || entityType != "a-b" {
		t.Error(entityType, ok)
	}
}
