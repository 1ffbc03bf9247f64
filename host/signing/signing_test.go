package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata/golden.txt from what the code does")

// keyOf returns the same key for the same number.
func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func statement(name, version string) Statement {
	s := Statement{Name: name, Version: version}
	for i := range s.Digest {
		s.Digest[i] = byte(i)
	}
	return s
}

// trusting returns trusted keys; the nth name has the key keyOf(n).
func trusting(t *testing.T, names ...string) *Keys {
	t.Helper()
	text := "# keys\n"
	for i, name := range names {
		line, err := Line(name, keyOf(byte(i)).Public().(ed25519.PublicKey))
		if err != nil {
			t.Fatal(err)
		}
		text += line + "\n"
	}
	k, err := parseKeys([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestGolden(t *testing.T) {
	const path = "testdata/golden.txt"
	s := statement("counter", "1.2")
	line, err := Line("release", keyOf(0).Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	key, err := KeyText(keyOf(0))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(key)
	got := fmt.Sprintf("message %s\nsignature %strust %s\nkey %s\n", hex.EncodeToString(s.message()), Text(Sign(s, keyOf(0))), line, hex.EncodeToString(block.Bytes))
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("the bytes are not those of %s: %v\n%s", path, err, got)
	}
}

func reasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func TestTrustVerifiesSignatures(t *testing.T) {
	k := trusting(t, "release", "second")
	s := statement("counter", "1.2")
	other := s
	other.Digest[31]++
	tampered := Sign(s, keyOf(0))
	tampered[SignatureBytes-1] ^= 1
	later := Sign(s, keyOf(0))
	later[0]++
	// The key of a trusted signer with the signature of a different one.
	borrowed := append(Sign(s, keyOf(0))[:1+ed25519.PublicKeySize:1+ed25519.PublicKeySize], Sign(s, keyOf(5))[1+ed25519.PublicKeySize:]...)
	for name, c := range map[string]struct {
		signature []byte
		by        string
		reason    Reason
	}{
		"good":                     {Sign(s, keyOf(0)), "release", ""},
		"of another trusted key":   {Sign(s, keyOf(1)), "second", ""},
		"none":                     {nil, "", Missing},
		"of an unknown key":        {Sign(s, keyOf(5)), "", Untrusted},
		"of other bytes":           {Sign(other, keyOf(0)), "", Bad},
		"of another name":          {Sign(statement("counte", "r1.2"), keyOf(0)), "", Bad},
		"of another version":       {Sign(statement("counter", "1.3"), keyOf(0)), "", Bad},
		"of the plain bytes":       {append([]byte{1}, append(keyOf(0).Public().(ed25519.PublicKey), ed25519.Sign(keyOf(0), s.Digest[:])...)...), "", Bad},
		"one bit of it is another": {tampered, "", Bad},
		"of another version of it": {later, "", Bad},
		"with a borrowed key":      {borrowed, "", Bad},
		"too short":                {Sign(s, keyOf(0))[:SignatureBytes-1], "", Bad},
		"too long":                 {append(Sign(s, keyOf(0)), 0), "", Bad},
	} {
		by, err := k.Judge(s, c.signature)
		if by != c.by || reasonOf(err) != c.reason || (err == nil) != (c.reason == "") {
			t.Errorf("%s: by %q, %v", name, by, err)
		}
	}
	if by, err := new(Keys).Judge(s, Sign(s, keyOf(0))); reasonOf(err) != Untrusted {
		t.Errorf("without keys: by %q, %v", by, err)
	}
}

func TestText(t *testing.T) {
	signature := Sign(statement("a", ""), keyOf(3))
	if got, err := ParseText([]byte(Text(signature))); err != nil || !bytes.Equal(got, signature) {
		t.Errorf("read back: %v", err)
	}
	for _, text := range []string{"", "x", "AA==", Text(signature[:96]), Text(append([]byte{2}, signature[1:]...)), Text(signature) + Text(signature)} {
		if _, err := ParseText([]byte(text)); err == nil {
			t.Errorf("%q is a signature", text)
		}
	}
	key, err := KeyText(keyOf(3))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseKey(key); err != nil || !got.Equal(keyOf(3)) {
		t.Errorf("a key read back: %v", err)
	}
	for _, text := range []string{"", string(key) + string(key), strings.ReplaceAll(string(key), "PRIVATE", "PUBLIC"), "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"} {
		if _, err := ParseKey([]byte(text)); err == nil || strings.Contains(err.Error(), "AA") {
			t.Errorf("%q is a key: %v", text, err)
		}
	}
}

func TestTrustFile(t *testing.T) {
	line, err := Line("release", keyOf(0).Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	second, _ := Line("release", keyOf(1).Public().(ed25519.PublicKey))
	for name, c := range map[string]struct {
		text, fault string
	}{
		"one":              {line + "\n", ""},
		"of one name":      {line + "\n" + second, ""},
		"none":             {"# none\n", ""},
		"spaces":           {"\n  " + line + "\r\n\n", ""},
		"empty":            {" \n", "empty"},
		"twice":            {line + "\n" + strings.Replace(line, "release", "other", 1), "line 2"},
		"no name":          {strings.TrimPrefix(line, "release"), "line 1"},
		"no key":           {line + "\nrelease", "line 2"},
		"short":            {"release:AAAA", "line 1"},
		"bits at the end":  {line[:len(line)-2] + "1=", "line 1"},
		"a name of spaces": {strings.Replace(line, "release", "a b", 1), "line 1"},
		"long":             {strings.Repeat("#", maxFileBytes+1), "more than"},
	} {
		k, err := parseKeys([]byte(c.text))
		switch {
		case c.fault == "" && (err != nil || k == nil):
			t.Errorf("%s: %v", name, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %v", name, err)
		case err != nil && strings.Contains(err.Error(), "AAA"):
			t.Errorf("%s: the error tells of the text: %v", name, err)
		}
	}
	var many strings.Builder
	for i := range maxKeys + 1 {
		seed := make([]byte, ed25519.SeedSize)
		seed[0], seed[1] = byte(i), byte(i>>8)
		l, _ := Line("k", ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
		many.WriteString(l + "\n")
	}
	if _, err := parseKeys([]byte(many.String())); err == nil || !strings.Contains(err.Error(), "1024") {
		t.Errorf("too many keys: %v", err)
	}
}

// TestInvalidTrustFileKeepsPreviousKeys checks that an invalid or missing file leaves the
// previous keys in place, and that a valid file replaces them.
func TestInvalidTrustFileKeepsPreviousKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trust")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := func(name string, n byte) string {
		l, err := Line(name, keyOf(n).Public().(ed25519.PublicKey))
		if err != nil {
			t.Fatal(err)
		}
		return l + "\n"
	}
	s := statement("a", "1")
	write("nonsense\n")
	o := Options{Mode: Require, File: path, Logger: slog.New(slog.DiscardHandler)}
	if _, err := Open(o); err == nil {
		t.Error("a file that is wrong opens")
	}
	write(line("one", 0))
	trust, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	by := func(n byte) string {
		name, _ := trust.Judge(s, Sign(s, keyOf(n)))
		return name
	}
	for _, bad := range []string{"", "nonsense\n", line("one", 0) + line("two", 0)} {
		write(bad)
		changed := trust.Changed()
		trust.read()
		trust.read() // a change takes effect at the second look
		select {
		case <-changed:
			t.Errorf("%q changes the keys", bad)
		default:
		}
		if by(0) != "one" {
			t.Errorf("%q takes the key away", bad)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if trust.read(); by(0) != "one" {
		t.Error("without its file the key is gone")
	}
	if n := testutil.ToFloat64(trust.failures); n < 3 {
		t.Errorf("%v failures were counted", n)
	}
	write(line("two", 1))
	changed := trust.Changed()
	trust.read()
	trust.read()
	select {
	case <-changed:
	default:
		t.Error("nobody is told of other keys")
	}
	if by(0) != "" || by(1) != "two" {
		t.Errorf("signed by %q and %q", by(0), by(1))
	}
}

func FuzzParseKeys(f *testing.F) {
	line, _ := Line("release", keyOf(0).Public().(ed25519.PublicKey))
	f.Add([]byte(line + "\n# more\n"))
	f.Add([]byte("a:b:c"))
	f.Add([]byte("\n \r\n#"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := parseKeys(text)
		if (k == nil) == (err == nil) {
			t.Fatalf("%v, %v", k, err)
		}
		if err != nil {
			return
		}
		// The keys match the lines of the file exactly.
		var again strings.Builder
		again.WriteString("#\n")
		for key, name := range k.names {
			l, err := Line(name, key[:])
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(text, []byte(l)) {
				t.Fatalf("%q is not in the file", l)
			}
			again.WriteString(l + "\n")
		}
		if b, err := parseKeys([]byte(again.String())); err != nil || len(b.names) != len(k.names) {
			t.Fatalf("read back: %v", err)
		}
	})
}
