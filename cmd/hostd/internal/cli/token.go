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

// AddTokenFile gives a command the flags --token-file and --insecure-token. A
// token is in a file alone: a command line can be read by others.
func AddTokenFile(c *cobra.Command, path *string, insecure *bool) {
	c.Flags().BoolVar(insecure, "insecure-token", false, "allow sending the token without TLS to nodes on other machines")
	c.Flags().StringVar(path, "token-file", os.Getenv("HOSTD_TOKEN_FILE"), "`file` with the token to authenticate with, as written by 'hostd token create --out' (not a node's list of token hashes); env HOSTD_TOKEN_FILE")
}

const (
	// maxTokenBytes bounds the text of a token's file.
	maxTokenBytes = 16 << 10
	// tokenFreshFor is how long a token that was read is used: its file may be
	// replaced while a command runs.
	tokenFreshFor = 5 * time.Second
)

// tokenFile is a file with a token.
type tokenFile struct {
	path string
	once bool // what is no regular file is not there a second time

	mu    sync.Mutex
	token string
	read  time.Time
}

// newTokenFile looks what is at a path and does not read it.
func newTokenFile(path string) *tokenFile {
	info, err := os.Stat(path)
	return &tokenFile{path: path, once: err == nil && !info.Mode().IsRegular()}
}

// Token is for client.Options.
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

// ReadToken reads a file that holds one token and white space around it. It may
// be a pipe, which is waited for as long as ctx.
func ReadToken(ctx context.Context, path string) (string, error) {
	text, err := ReadFile(ctx, path, maxTokenBytes)
	if err != nil {
		return "", err
	}
	if listsHashes(string(text)) {
		return "", fmt.Errorf("%s is the list that a node has of its tokens (token-file of 'hostd serve'), which holds their hashes only: a command needs a token itself, such as the file of 'hostd token create --out'", path)
	}
	token := strings.TrimSpace(string(text))
	unseen := func(c rune) bool { return c <= ' ' || c > '~' }
	if token == "" || strings.ContainsFunc(token, unseen) {
		return "", errors.New(path + " does not hold one token and nothing else")
	}
	return token, nil
}

// listsHashes reports that a file begins as a node's list of tokens does, with
// name:sha256hex[:expires]. No token has a colon.
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

// warnOpen says so where others than the owner of a token's file can read it.
func warnOpen(w io.Writer, path string) {
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(w, "warning: the token in %s can be read by others: its mode is %04o, 'chmod 600' keeps it to its owner\n", path, info.Mode().Perm())
	}
}
