package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestRoles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret, lines := map[string]string{}, ""
	for _, name := range []string{"root", "ann"} {
		token := authn.NewToken()
		line, err := authn.TokenLine(name, token, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		secret[name], lines = write(name, token), lines+line+"\n"
	}
	rules := `[{"effect":"allow","verbs":["invoke","read"],"types":["counter"],"idPrefixes":["${principal.name}/"]}]`
	good, odd, bad := write("good.json", rules), write("odd.json", `[{"effect":"allow","verbs":["invoke"],"hours":9}]`), write("bad.json", `[{"effect":"allow","verbs":["fly"]}]`)
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--auth", "required", "--token-file", write("tokens", lines), "--admin", "full"}})
	for _, tt := range []struct {
		as, args string
		code     int
		says     string // expected on stdout or stderr
	}{
		{"ann", "binding ls", cli.ExitDone, "there is no admin"},
		{"ann", "auth can-i", cli.ExitDone, "role checks are off"},
		{"ann", "auth whoami", cli.ExitDone, "role checks are off"},
		{"root", "binding put token:rot admin", cli.ExitFailed, "must name its creator"},
		{"root", "binding put token:root admin", cli.ExitDone, "revision 1"},
		{"ann", "binding ls", cli.ExitFailed, `token "ann" lacks the verb security: no rule of its roles allows it`},
		{"ann", "module ls", cli.ExitFailed, "'hostd auth whoami' prints your identity"},
		{"ann", "auth can-i", cli.ExitDone, "token:ann, groups -, roles -"},
		{"root", "role put clerk --file " + good, cli.ExitDone, "revision 2"},
		{"root", "role put clerk --file " + odd, cli.ExitUsage, "must be a JSON array of rules"},
		{"root", "role put clerk --file " + bad, cli.ExitUsage, "unknown verb"},
		{"root", "role put admin --file " + good, cli.ExitUsage, "is built in"},
		{"root", "role put clerk", cli.ExitUsage, "--file must be set"},
		{"root", "role ls", cli.ExitDone, "clerk"},
		{"root", "role get clerk", cli.ExitDone, "allow   invoke,read  counter  ${principal.name}/  -"},
		{"root", "role get clerk -o json", cli.ExitDone, `"idPrefixes": [`},
		{"root", "role get other", cli.ExitFailed, "'hostd role ls' lists the roles"},
		{"ann", "role get clerk", cli.ExitFailed, "lacks the verb security"},
		{"root", "role describe clerk", cli.ExitDone, "allow   invoke,read  counter  ${principal.name}/  -"},
		{"root", "role describe clerk -o json", cli.ExitDone, `"idPrefixes": [`},
		{"root", "role describe other", cli.ExitFailed, "'hostd role ls' lists the roles"},
		{"root", "binding put ann clerk", cli.ExitUsage, "token:NAME"},
		{"root", "binding put token:ann nobody", cli.ExitFailed, "role nobody does not exist"},
		{"root", "binding put token:ann clerk", cli.ExitDone, "revision 3"},
		{"root", "role rm clerk", cli.ExitFailed, "token:ann has the role clerk"},
		{"root", "binding ls", cli.ExitDone, "token:ann   clerk  3"},
		{"root", "binding get token:ann", cli.ExitDone, "token:ann  clerk  3"},
		{"root", "binding get token:ann -o json", cli.ExitDone, `"subject": "token:ann"`},
		{"root", "binding get token:bo", cli.ExitFailed, "'hostd binding ls' lists the bindings"},
		{"root", "binding get ann", cli.ExitUsage, "token:NAME"},
		{"ann", "binding get token:ann", cli.ExitFailed, "lacks the verb security"},
		{"ann", "auth whoami", cli.ExitDone, "token:ann  -       clerk"},
		{"root", "auth whoami -o json", cli.ExitDone, `"subject": "token:root"`},
		{"root", "binding ls -o json", cli.ExitDone, `"enforced": true`},
		{"ann", "auth can-i invoke counter/ann/1 add", cli.ExitDone, "yes"},
		{"ann", "auth can-i invoke counter/bo/1 add", cli.ExitFailed, "no rule of its roles allows it"},
		{"ann", "auth can-i invoke counter", cli.ExitFailed, "all ids"},
		{"ann", "auth can-i fly", cli.ExitFailed, "unknown verb"},
		{"root", "auth can-i read * -o json", cli.ExitDone, `"allowed": true`},
		{"root", "binding rm token:root", cli.ExitFailed, "is the last subject with the role admin"},
		{"root", "binding rm token:ann", cli.ExitDone, "token:ann has no roles"},
		{"root", "role rm clerk", cli.ExitDone, "clerk is not a role"},
		{"root", "role put small --quota commands-per-second=100,streams=8", cli.ExitDone, "revision"},
		{"root", "role get small", cli.ExitDone, "quotas: commands-per-second=100,streams=8"},
		{"root", "role put small --quota uploads=unlimited --file " + good, cli.ExitDone, "revision"},
		{"root", "role get small", cli.ExitDone, "quotas: uploads=unlimited"},
		{"root", "role get small", cli.ExitDone, "allow   invoke,read  counter  ${principal.name}/  -"},
		{"root", "role ls", cli.ExitDone, "uploads=unlimited"},
		{"root", "role put small --quota commands=1", cli.ExitUsage, "must be one of commands-per-second"},
		{"root", "role put small --quota streams=0", cli.ExitUsage, "must be streams=NUMBER"},
		{"root", "role put small --quota streams", cli.ExitUsage, "must be streams=NUMBER"},
		{"root", "role put a/b --quota streams=1", cli.ExitUsage, "role"},
		{"ann", "role put small --quota streams=1", cli.ExitFailed, "lacks the verb security"},
		{"root", "role get small", cli.ExitDone, "quotas: uploads=unlimited"},
	} {
		got := hostd(t, append(strings.Fields(tt.args), "--addr", node.API(), "--token-file", secret[tt.as])...)
		if got.code != tt.code || !strings.Contains(got.out+got.err, tt.says) {
			t.Errorf("hostd %s, as %s: exit code %d, want %d with %q\n%s%s", tt.args, tt.as, got.code, tt.code, tt.says, got.out, got.err)
		}
	}
}
