// Command release builds all artifacts of a release in one directory: an
// archive for each system and architecture, Debian and RPM packages, npm
// packages, a Rust crate, an OCI image layout, a Homebrew formula, an SBOM,
// checksums, and signatures if there is a key. Builds are reproducible: two runs
// on the same commit produce the same bytes. It runs git, go, npm, cargo and the
// program that it has built. It needs no network once the caches of Go modules
// and of npm are filled, publishes nothing and starts no goroutine.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// pairs are the systems and architectures of a release.
var pairs = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// release has the data that all artifacts share.
type release struct {
	root, out string
	version   string
	commit    string
	dirty     bool
	date      time.Time // time of the commit, and of every file in the artifacts
	pairs     []string
	programs  map[string]string // prebuilt programs by pair, for tests
	signKey   string            // PEM file of an Ed25519 key; empty signs nothing
	gpgKey    string            // armored key that signs packages; empty signs none
	downloads string            // URL of the folder that users download the release from
	extra     []file            // files in every archive and package
}

var semver = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func main() {
	r := release{}
	var only string
	flag.StringVar(&r.root, "root", "../..", "the repository")
	flag.StringVar(&r.out, "out", "dist", "`folder` of the artefacts; it is emptied first")
	flag.StringVar(&r.version, "version", "", "the release, such as 0.2.0 or 0.2.0-rc.1")
	flag.StringVar(&only, "pairs", strings.Join(pairs, ","), "systems and processors")
	flag.StringVar(&r.signKey, "sign-key", "", "PEM `file` with an Ed25519 key that signs the checksums")
	flag.StringVar(&r.gpgKey, "package-key", "", "`file` with an OpenPGP key that signs the packages")
	flag.StringVar(&r.downloads, "downloads", defaultDownloads, "`URL` of the folder that users download the release from, for the Homebrew formula; VERSION in it is replaced")
	flag.Parse()
	r.pairs = strings.Split(only, ",")
	r.downloads = strings.ReplaceAll(r.downloads, "VERSION", r.version)
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run() error {
	if !semver.MatchString(r.version) {
		return fmt.Errorf("version %q: want MAJOR.MINOR.PATCH, such as 0.2.0-rc.1", r.version)
	}
	var err error
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	if err := r.readCommit(); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "hostd-release-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := r.build(work); err != nil {
		return err
	}
	if r.extra, err = r.documents(work); err != nil {
		return err
	}
	for _, step := range []func() error{r.archives, r.formula, r.packages, r.npm, r.crate, r.image, r.sbom, r.checksums, r.sign} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// readCommit reads the released commit. SOURCE_DATE_EPOCH overrides its time.
func (r *release) readCommit() error {
	if r.commit == "" {
		out, err := r.git("log", "-1", "--format=%H %cI")
		if err != nil {
			return err
		}
		commit, when, _ := strings.Cut(strings.TrimSpace(out), " ")
		changed, err := r.git("status", "--porcelain", "--untracked-files=no")
		if err != nil {
			return err
		}
		if r.date, err = time.Parse(time.RFC3339, when); err != nil {
			return err
		}
		r.commit, r.dirty = commit, changed != ""
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		var seconds int64
		if _, err := fmt.Sscan(epoch, &seconds); err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		r.date = time.Unix(seconds, 0)
	}
	r.date = r.date.UTC().Truncate(time.Second)
	return nil
}

func (r *release) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	out, err := cmd.Output()
	return string(out), err
}

// build builds the stripped program for each pair.
func (r *release) build(work string) error {
	if r.programs == nil {
		r.programs = map[string]string{}
	}
	all := r.pairs
	if here := runtime.GOOS + "/" + runtime.GOARCH; !slices.Contains(all, here) {
		all = append(slices.Clone(all), here) // this machine's program generates the documents
	}
	const at = "github.com/hostd/hostd/host/telemetry."
	flags := fmt.Sprintf("-s -w -buildid= -X %sversion=%s -X %scommit=%s -X %sdate=%s -X %sdirty=%v",
		at, r.version, at, r.commit, at, r.date.Format(time.RFC3339), at, r.dirty)
	for _, pair := range all {
		if r.programs[pair] != "" {
			continue
		}
		system, processor, ok := strings.Cut(pair, "/")
		if !ok {
			return fmt.Errorf("%s: want a system and a processor, such as darwin/arm64", pair)
		}
		to := filepath.Join(work, system+"-"+processor, "hostd")
		// The traces of gRPC, which hostd does not use, have templates, and with
		// templates the linker keeps every exported method.
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", flags, "-o", to, "./cmd/hostd")
		cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, os.Stderr, os.Stderr
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build for %s: %w", pair, err)
		}
		if err := r.checkProgram(pair, to); err != nil {
			return fmt.Errorf("program for %s: %w", pair, err)
		}
		r.programs[pair] = to
	}
	return nil
}

// checksums writes SHA256SUMS of all artifacts, in the format of sha256sum -c.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries { // sorted
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return r.write(sums, []byte(text.String()))
}

const sums = "SHA256SUMS"

func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}
