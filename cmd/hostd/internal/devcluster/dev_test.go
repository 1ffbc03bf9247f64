package devcluster

import "testing"

func TestTokensArePrintedOnlyOnTerminals(t *testing.T) {
	for _, tt := range []struct {
		token      string
		onTerminal bool
		want       string
	}{
		{"", true, "http://127.0.0.1:7070/console/"},
		{"", false, "http://127.0.0.1:7070/console/"},
		{"hst_a+b", true, "http://127.0.0.1:7070/console/#token=hst_a%2Bb"},
		{"hst_a+b", false, "http://127.0.0.1:7070/console/"},
	} {
		if got := consoleLink("http://127.0.0.1:7070", tt.token, tt.onTerminal); got != tt.want {
			t.Errorf("token %q, on a terminal %t: %s, want %s", tt.token, tt.onTerminal, got, tt.want)
		}
	}
}
