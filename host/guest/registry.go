package guest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostd/hostd/journal"
)

var (
	// ErrNotFound: no module of this digest is here. A retry is right once it
	// was pushed or fetched from a peer.
	ErrModuleNotFound = errors.New("no such module")
	// ErrTooLarge: the module is over the limit of a module's size.
	ErrModuleTooLarge = errors.New("module is too large")
	// ErrInUse: the module is compiled in memory; Release it first.
	ErrModuleInUse = errors.New("module is in use")
	// ErrClosed: the registry was closed.
	ErrRegistryClosed = errors.New("module registry is closed")
)

// DamagedModuleError says that the file of a module does not hold the bytes it is
// named for. The module is not served. Putting the module again, from an
// upload or from a peer, replaces the file.
type DamagedModuleError struct {
	Digest journal.Digest
	File   string // its name in the registry's directory, without the path
}

func (e *DamagedModuleError) Error() string {
	return fmt.Sprintf("module file %s is damaged: remove it, and push the module again or fetch it from a peer", e.File)
}

// RegistryOptions configure a Registry.
type RegistryOptions struct {
	Dir    string  // made with mode 0700
	Engine *Engine // compiles; may be nil where only bytes are kept
	// ModuleBytes bounds a module; the engine's limit, or 16 MiB without an
	// engine, when 0.
	ModuleBytes int64
	// ReadOnly opens what is there and changes nothing: for a look at a stopped
	// node.
	ReadOnly bool
}

// Registry is a directory of modules.
//
// A file is named by the SHA-256 of its bytes in lower-case hex with the
// suffix .wasm. It is written under a temporary name, synced and renamed, and
// the directory is synced after it: a file that has its name is whole, and one
// that Put returned for survives a power cut.
type Registry struct {
	dir    string
	engine *Engine
	limit  int64

	files chan struct{} // one slot: orders that a file is kept, and that it is removed

	mu       sync.Mutex
	closed   bool
	compiled map[journal.Digest]*compilation
}

const (
	moduleSuffix    = ".wasm"
	temporarySuffix = ".tmp"
)

// OpenRegistry opens the directory, makes it when it is not there, and removes what an
// interrupted Put left. Module files are not read.
func OpenRegistry(opts RegistryOptions) (*Registry, error) {
	r := &Registry{dir: opts.Dir, engine: opts.Engine, limit: opts.ModuleBytes, compiled: map[journal.Digest]*compilation{}, files: make(chan struct{}, 1)}
	if r.limit == 0 {
		r.limit = 16 << 20
		if r.engine != nil {
			r.limit = int64(r.engine.Limits().ModuleBytes)
		}
	}
	if opts.ReadOnly {
		return r, nil
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("open module registry: %w", err)
	}
	if err := os.Chmod(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("open module registry: %w", err)
	}
	if err := syncDir(filepath.Dir(filepath.Clean(r.dir))); err != nil {
		return nil, fmt.Errorf("open module registry: %w", err)
	}
	leftovers, err := filepath.Glob(filepath.Join(r.dir, "*"+temporarySuffix))
	if err != nil {
		return nil, fmt.Errorf("open module registry: %w", err)
	}
	for _, leftover := range leftovers {
		if err := os.Remove(leftover); err != nil {
			return nil, fmt.Errorf("open module registry: %w", err)
		}
	}
	return r, nil
}

// DigestOf returns the digest a module is known by.
func DigestOf(wasm []byte) journal.Digest { return sha256.Sum256(wasm) }

// Put keeps a module and returns its digest once the bytes are on disk. stored
// is false when they were there already. A file of that name with other bytes
// is replaced; one that is there is as new as if it were written now. Put does
// not check that wasm is a module: compile it for that.
func (r *Registry) Put(wasm []byte) (digest journal.Digest, stored bool, err error) {
	digest = DigestOf(wasm)
	if int64(len(wasm)) > r.limit {
		return digest, false, fmt.Errorf("put module %s: %w: %d bytes, limit %d", digest, ErrModuleTooLarge, len(wasm), r.limit)
	}
	r.files <- struct{}{}
	defer func() { <-r.files }()
	if _, err := r.Get(digest); err == nil {
		now := time.Now()
		if err := os.Chtimes(r.path(digest), now, now); err != nil {
			return digest, false, fmt.Errorf("put module %s: %w", digest, err)
		}
		// Whoever wrote it may not have come to this yet.
		if err := syncDir(r.dir); err != nil {
			return digest, false, fmt.Errorf("put module %s: %w", digest, err)
		}
		return digest, false, nil
	}
	if err := r.write(digest, wasm); err != nil {
		return digest, false, fmt.Errorf("put module %s: %w", digest, err)
	}
	return digest, true, nil
}

func (r *Registry) write(digest journal.Digest, wasm []byte) (err error) {
	file, err := os.CreateTemp(r.dir, digest.String()+".*"+temporarySuffix) // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(file.Name()))
		}
	}()
	_, err = file.Write(wasm)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(file.Name(), r.path(digest))
	}
	if err == nil {
		err = syncDir(r.dir)
	}
	return err
}

// Get returns the bytes of a module; the caller may keep them. The error is
// ErrNotFound, a *DamagedError or the disk's.
func (r *Registry) Get(digest journal.Digest) ([]byte, error) {
	file, err := os.Open(r.path(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("module %s: %w", digest, ErrModuleNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("get module: %w", err)
	}
	defer file.Close()
	wasm, err := io.ReadAll(io.LimitReader(file, r.limit+1))
	if err != nil {
		return nil, fmt.Errorf("get module: %w", err)
	}
	if DigestOf(wasm) != digest {
		return nil, &DamagedModuleError{Digest: digest, File: filepath.Base(r.path(digest))}
	}
	return wasm, nil
}

// pieceBytes is how much of a module Copy holds at a time.
const pieceBytes = 64 << 10

// Copy writes the bytes of a module to w, in pieces of at most 64 KiB that w may
// not keep. It holds one piece at a time: many may copy at once, as slowly as
// they like. The errors are those of Get and of w; after an error w has a part.
func (r *Registry) Copy(w io.Writer, digest journal.Digest) error {
	file, err := os.Open(r.path(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("module %s: %w", digest, ErrModuleNotFound)
	}
	if err != nil {
		return fmt.Errorf("get module: %w", err)
	}
	defer file.Close()
	sum, piece, from := sha256.New(), make([]byte, pieceBytes), io.LimitReader(file, r.limit+1)
	for {
		n, err := io.ReadFull(from, piece)
		if n > 0 {
			sum.Write(piece[:n])
			if _, err := w.Write(piece[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			if journal.Digest(sum.Sum(nil)) != digest {
				return &DamagedModuleError{Digest: digest, File: filepath.Base(r.path(digest))}
			}
			return nil
		case err != nil:
			return fmt.Errorf("get module: %w", err)
		}
	}
}

// Check reads the file of a module and says whether it is whole, with the errors
// of Get.
func (r *Registry) Check(digest journal.Digest) error { return r.Copy(io.Discard, digest) }

// Has reports whether there is a file for the module. It does not read it: Get
// can still find it damaged.
func (r *Registry) Has(digest journal.Digest) bool {
	info, err := os.Stat(r.path(digest))
	return err == nil && info.Mode().IsRegular()
}

// List returns the digests of all files, in order. It does not read them.
func (r *Registry) List() ([]journal.Digest, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	var digests []journal.Digest
	for _, entry := range entries {
		if digest, ok := parseName(entry.Name()); ok && entry.Type().IsRegular() {
			digests = append(digests, digest)
		}
	}
	slices.SortFunc(digests, func(a, b journal.Digest) int { return cmp.Compare(a.String(), b.String()) })
	return digests, nil
}

// Remove deletes the file of a module, such as one that did not compile. It
// returns ErrInUse while the module is in memory; removing what is not there
// is no error.
func (r *Registry) Remove(digest journal.Digest) error {
	r.mu.Lock()
	inUse := r.compiled[digest] != nil
	r.mu.Unlock()
	if inUse {
		return fmt.Errorf("remove module %s: %w", digest, ErrModuleInUse)
	}
	err := removeIfThere(r.path(digest))
	if err == nil {
		err = syncDir(r.dir)
	}
	if err != nil {
		return fmt.Errorf("remove module %s: %w", digest, err)
	}
	return nil
}

// RemoveOlder deletes the file of a module that was put last before a time, and
// says whether it did. What is in memory of the module stays: see Release.
func (r *Registry) RemoveOlder(digest journal.Digest, than time.Time) (removed bool, err error) {
	r.files <- struct{}{}
	defer func() { <-r.files }()
	info, err := os.Stat(r.path(digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err == nil && !info.ModTime().Before(than):
		return false, nil
	case err == nil:
		err = removeIfThere(r.path(digest))
	}
	if err == nil {
		err = syncDir(r.dir)
	}
	if err != nil {
		return false, fmt.Errorf("remove module %s: %w", digest, err)
	}
	return true, nil
}

func (r *Registry) path(digest journal.Digest) string {
	return filepath.Join(r.dir, digest.String()+moduleSuffix)
}

func parseName(name string) (digest journal.Digest, ok bool) {
	text, ok := strings.CutSuffix(name, moduleSuffix)
	if !ok || len(text) != hex.EncodedLen(len(digest)) {
		return digest, false
	}
	if _, err := hex.Decode(digest[:], []byte(text)); err != nil {
		return digest, false
	}
	return digest, digest.String() == text
}

func removeIfThere(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	handle, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = handle.Sync()
	if closeErr := handle.Close(); err == nil {
		err = closeErr
	}
	return err
}
