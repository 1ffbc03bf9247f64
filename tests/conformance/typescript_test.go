package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTypeScriptIsStrict checks that the TypeScript examples, and the SDK with
// them, pass the compiler's strictest checks, which find errors in types and
// payloads.
func TestTypeScriptIsStrict(t *testing.T) {
	examples, err := filepath.Abs("../../examples/wasm")
	if err != nil {
		t.Fatal(err)
	}
	tsc := filepath.Join(examples, "counter-ts/node_modules/.bin/tsc")
	if _, err := os.Stat(tsc); err != nil {
		t.Skip("needs the TypeScript compiler: npm ci in examples/wasm/counter-ts")
	}
	check := func(project string) ([]byte, error) {
		return exec.CommandContext(t.Context(), tsc, "--project", project).CombinedOutput()
	}
	for _, project := range []string{filepath.Join(examples, "counter-ts"), filepath.Join(examples, "cart-ts"), filepath.Join(examples, "booking"), "testdata/typed"} {
		if out, err := check(project); err != nil {
			t.Errorf("%s: %v\n%s", project, err, out)
		}
	}
}
