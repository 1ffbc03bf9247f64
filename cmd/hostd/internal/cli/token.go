package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// AddTokenFile adds the flags --token-file and --insecure-token to a command. A
// token is only in a file, because other users can read a command line.
func AddTokenFile(c *cobra.Command, path *string, insecure *bool) {
	c.Flags().BoolVar(insecure, "insecure-token", false, "allow sending the token without TLS to nodes on other machines")
	c.Flags().StringVar(path, "token-file", os.Getenv("HOSTD_TOKEN_FILE"), "`file` with the token to authenticate with, as written by 'hostd token create --out' (not a node's list of token hashes); env HOSTD_TOKEN_FILE")
}

const (
	// maxTokenBytes limits the content of a token file.
	maxTokenBytes = 16 << 10
	// tokenFreshFor is how long a token is used before its file is read again,
	// because the file may be replaced while a command runs.
	tokenFreshFor = 5 * time.Second
)

// tokenFile is a file with a token.
type tokenFile struct {
	path string
	once bool // not a regular file, so that it can be read only once

	mu    sync.Mutex
	token string
	read  time.Time
}

// newTokenFile checks the kind of file at a path, without reading it.
func newTokenFile(path string) *tokenFile {
	info, err := os.Stat(path)
	return &tokenFile{path: path, once: err == nil && !info.Mode().IsRegular()}
}

// Token implements client.Options.TokenSource.
func (f *tokenFile) Token(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.token != "" && (f.once || time.Since(f.read) < tokenFreshFor) {
		return f.token, nil
	}
	token, err := ReadToken(ctx, f.path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	f.token, f.read = token, time.Now()
	return token, nil
}

// ReadToken reads a file that holds one token surrounded by white space. It may
// be a pipe: ReadToken waits for it until ctx ends.
func ReadToken(ctx context.Context, path string) (string, error) {
	text, err := ReadFile(ctx, path, maxTokenBytes)
	if err != nil {
		return "", err
	}
	if listsHashes(string(text)) {
		return "", fmt.Errorf("%s is a node's token-file, which contains only hashes of tokens: a command needs the token itself, such as the file of 'hostd token create --out'", path)
	}
	token := strings.TrimSpace(string(text))
	unseen := func(c rune) bool { return c <= ' ' || c > '~' }
	if token == "" || strings.ContainsFunc(token, unseen) {
		return "", errors.New(path + " must contain one token and nothing else")
	}
	return token, nil
}

// listsHashes reports whether a file begins like a node's list of tokens, with
// name:sha256hex[:expires]. A token contains no colon.
func listsHashes(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, ":")
		digits, _, _ := strings.Cut(rest, ":")
		hash, err := hex.DecodeString(digits)
		return name != "" && err == nil && len(hash) == sha256.Size
	}
	return false
}

// warnOpen warns if users other than the owner of a token file can read it.
func warnOpen(w io.Writer, path string) {
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(w, "warning: other users can read the token in %s: its mode is %04o, run 'chmod 600' on it\n", path, info.Mode().Perm())
	}
}
