package pprofile_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/debugging/pprofile"
)

func profile() *pprofile.Profile {
	p := &pprofile.Profile{Of: "cart", Began: time.Unix(1000, 0), Long: 30 * time.Second}
	for range 2 { // two nodes
		p.Add(pprofile.Stack{Functions: []string{"hot", "decide", "hostd_handle"}, Samples: 3, Fuel: 3000})
		p.Add(pprofile.Stack{Functions: []string{"cold", "decide", "hostd_handle"}, Samples: 1, Fuel: 1000})
	}
	p.Add(pprofile.Stack{Functions: []string{"hot"}, Samples: 1, Fuel: 2000})
	return p
}

// TestPprofReadsProfile checks that Go's own pprof reads the file, with the totals,
// the names and the call graph.
func TestPprofReadsProfile(t *testing.T) {
	content, err := profile().Encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "p.pb.gz")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, wants := range map[string][]string{
		"-top":                       {`Type: fuel`, `File: cart`, `8000\S* 80.00% 80.00%\s+8000\S* 80.00%\s+hot`, `2000\S* 20.00%\s+100%\s+2000\S* 20.00%\s+cold`, `\s0\s+0%\s+100%\s+8000\S* 80.00%\s+decide`, `Duration: 30s`},
		"-top -sample_index=samples": {`7 77.78% 77.78%\s+7 77.78%\s+hot`},
		"-peek=cold$":                {`2000\S*\s+100%\s+\|\s+decide`},
	} {
		out, err := exec.Command("go", append(append([]string{"tool", "pprof"}, strings.Fields(args)...), path)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range wants {
			if !regexp.MustCompile(want).Match(out) {
				t.Errorf("%s: %q is missing in\n%s", args, want, out)
			}
		}
	}
}

// TestEncodingIsStable checks that the same stacks in any order have the same
// bytes.
func TestEncodingIsStable(t *testing.T) {
	first, err := profile().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := profile().Encode()
		if err != nil || !bytes.Equal(first, again) {
			t.Fatal("the same profile has other bytes", err)
		}
	}
}
