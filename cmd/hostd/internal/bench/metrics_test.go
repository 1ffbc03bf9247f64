package bench

import (
	"strings"
	"testing"
)

func TestParseMetrics(t *testing.T) {
	m, err := parseMetrics(strings.NewReader(`# HELP a what it is
# TYPE a gauge
a{type="x y",shard="1"} 1.5
a{type="z"} 2
b 3e+06
`))
	if err != nil {
		t.Fatal(err)
	}
	if m["a"] != 3.5 || m["b"] != 3e6 || len(m) != 2 {
		t.Errorf("read as %v", m)
	}
	for _, bad := range []string{"a", "a b", "a 1 b\n"} {
		if m, err := parseMetrics(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, m)
		}
	}
}
