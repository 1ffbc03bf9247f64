package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTypeScriptIsStrict: the examples in TypeScript, and with them the SDK,
// pass the strictest checks of the compiler, which finds what is wrong with a
// type or a payload.
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
	for _, project := range []string{filepath.Join(examples, "counter-ts"), filepath.Join(examples, "cart-ts"), "testdata/typed"} {
		if out, err := check(project); err != nil {
			t.Errorf("%s: %v\n%s", project, err, out)
		}
	}
}
