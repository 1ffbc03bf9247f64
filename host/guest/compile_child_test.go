package guest

import (
	"bytes"
	"strings"
	"testing"
)

func TestChildRejectsNonsense(t *testing.T) {
	for name, input := range map[string]string{"nothing": "", "no JSON": "x\n", "endless line": strings.Repeat("x", 1<<20)} {
		var said bytes.Buffer
		if code := serveCompile(strings.NewReader(input), &said, nil); code != failed || said.Len() == 0 {
			t.Errorf("%s: exit code %d, %q", name, code, said.String())
		}
	}
}
