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
	// ErrModuleNotFound: the registry has no module with this digest. Retry after
	// the module has been pushed or fetched from a peer.
	ErrModuleNotFound = errors.New("the module does not exist")
	// errModuleTooLarge: the module exceeds the size limit.
	errModuleTooLarge = errors.New("the module is too large")
	// errRegistryClosed: the registry was closed.
	errRegistryClosed = errors.New("the module registry is closed")
)

// DamagedModuleError reports that the content of a module's file does not match
// its digest. The module is not served. Putting the module again, from an
// upload or from a peer, replaces the file.
type DamagedModuleError struct {
	Digest journal.Digest
	File   string // file name in the registry's directory, without the path
}

func (e *DamagedModuleError) Error() string {
	return fmt.Sprintf("module file %s is damaged: remove it, then push the module again or let the node fetch it from a peer", e.File)
}

// RegistryOptions configure a Registry.
type RegistryOptions struct {
	Dir    string  // created with mode 0700
	Engine *Engine // compiles modules; may be nil if only bytes are stored
	// ModuleBytes is the maximum size of a module. 0 selects the engine's limit,
	// or 16 MiB without an engine.
	ModuleBytes int64
	// ReadOnly opens an existing directory and changes nothing, to inspect a
	// stopped node.
	ReadOnly bool
}

// Registry is a directory of modules.
//
// The name of a file is the SHA-256 of its content in lower-case hex with the
// suffix .wasm. A module is written to a temporary file, which is synced and
// renamed, and then the directory is synced. So a file with its final name is
// complete, and a module survives a power failure once Put has returned.
type Registry struct {
	dir    string
	engine *Engine
	limit  int64

	files chan struct{} // mutex around changes of files

	mu       sync.Mutex
	closed   bool
	compiled map[journal.Digest]*compilation
}

const (
	moduleSuffix    = ".wasm"
	temporarySuffix = ".tmp"
)

// OpenRegistry opens the directory, creates it if it does not exist, and
// removes temporary files of an interrupted Put. It does not read module files.
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

// DigestOf returns the digest that identifies a module.
func DigestOf(wasm []byte) journal.Digest { return sha256.Sum256(wasm) }

// Put stores a module and returns its digest once the bytes are on disk. stored
// is false if the module was there already; then its modification time is set
// to now, so that RemoveOlder sees it as new. A damaged file is replaced. Put
// does not check that wasm is a valid module; compile it for that.
func (r *Registry) Put(wasm []byte) (digest journal.Digest, stored bool, err error) {
	digest, at, err := r.PutIf(wasm, func() error { return nil })
	return digest, !at.IsZero(), err
}

// PutIf is Put, but if the module is not there yet, it is stored only if room
// returns nil. No other module is stored between the call of room and the end of
// PutIf. at is the modification time of the stored file, and zero if the module
// was there already.
func (r *Registry) PutIf(wasm []byte, room func() error) (digest journal.Digest, at time.Time, err error) {
	digest = DigestOf(wasm)
	if int64(len(wasm)) > r.limit {
		return digest, at, fmt.Errorf("put module %s: %w: %d bytes, limit %d", digest, errModuleTooLarge, len(wasm), r.limit)
	}
	r.files <- struct{}{}
	defer func() { <-r.files }()
	if _, err := r.Get(digest); err == nil {
		now := time.Now()
		if err := os.Chtimes(r.path(digest), now, now); err != nil {
			return digest, at, fmt.Errorf("put module %s: %w", digest, err)
		}
		// The writer of the file may not have synced the directory yet.
		if err := syncDir(r.dir); err != nil {
			return digest, at, fmt.Errorf("put module %s: %w", digest, err)
		}
		return digest, at, nil
	}
	if err := room(); err != nil {
		return digest, at, err
	}
	if err := r.write(digest, wasm); err != nil {
		return digest, at, fmt.Errorf("put module %s: %w", digest, err)
	}
	info, err := os.Stat(r.path(digest))
	if err != nil {
		return digest, at, fmt.Errorf("put module %s: %w", digest, err)
	}
	return digest, info.ModTime(), nil
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

// Get returns the bytes of a module, which the caller may keep. The error is
// ErrModuleNotFound, a *DamagedModuleError or an I/O error.
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

// pieceBytes is the number of bytes that Copy holds at a time.
const pieceBytes = 64 << 10

// Copy writes the bytes of a module to w, in pieces of at most 64 KiB that w
// must not keep. Because it holds only one piece at a time, many slow copies
// may run concurrently. It returns the errors of Get and of w. After an error,
// w may have received part of the module.
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

// Check reads the file of a module and verifies its digest. It returns the
// errors of Get.
func (r *Registry) Check(digest journal.Digest) error { return r.Copy(io.Discard, digest) }

// Has reports whether a file for the module exists. It does not read the file,
// so Get may still find it damaged.
func (r *Registry) Has(digest journal.Digest) bool {
	info, err := os.Stat(r.path(digest))
	return err == nil && info.Mode().IsRegular()
}

// Size returns the size of a module's file in bytes, and 0 if there is none.
func (r *Registry) Size(digest journal.Digest) int64 {
	info, err := os.Stat(r.path(digest))
	if err != nil {
		return 0
	}
	return info.Size()
}

// List returns the digests of all module files, sorted, without reading the
// files.
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

// RemoveOlder deletes the file of a module if its last Put was before the given
// time, and reports whether it did. A compiled module stays in memory, see
// Release.
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
