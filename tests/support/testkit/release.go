package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// ErrNoCommit: the checkout does not have the commit of a release, and its
// origin does not provide it, for example in a shallow clone.
var ErrNoCommit = errors.New("the checkout has no such commit")

// fetchTime bounds the download of a commit.
const fetchTime = time.Minute

// Release returns the path of the program at a commit. It is built once per run
// from the sources in git.
func Release(commit string) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	if err := haveCommit(root, commit); err != nil {
		return "", err
	}
	path, err := builtOnce("hostd-"+commit, func(path string) error {
		dir, err := os.MkdirTemp("", "hostd-release")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
		defer cancel()
		sources := filepath.Join(dir, "sources.tar")
		for _, step := range [][]string{
			{root, "git", "archive", "--output", sources, commit},
			{dir, "tar", "-xf", sources},
			{dir, "go", "build", "-buildvcs=false", "-o", path, "./cmd/hostd"},
		} {
			c := exec.CommandContext(ctx, step[1], step[2:]...)
			c.Dir = step[0]
			if log, err := c.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", strings.Join(step[1:], " "), err, log)
			}
		}
		return nil
	})
	releases.Store(path, true)
	return path, err
}

// releases holds the paths that Release has returned.
var releases sync.Map

// isRelease reports whether a program is an earlier release.
func isRelease(path string) bool {
	_, ok := releases.Load(path)
	return ok
}

// haveCommit fetches the commit if it is missing.
func haveCommit(root, commit string) error {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	git := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(ctx, "git", args...)
		c.Dir = root
		c.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0")
		return c.CombinedOutput()
	}
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err == nil {
		return nil
	}
	if log, err := git("fetch", "--no-tags", "--depth=1", "origin", commit); err != nil {
		return fmt.Errorf("%w %s: %s", ErrNoCommit, commit, strings.TrimSpace(string(log)))
	}
	return nil
}
