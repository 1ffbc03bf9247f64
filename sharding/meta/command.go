package meta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/hostd/hostd/sharding"
)

const commandVersion = 1

// Operation names. They are part of the log's format.
const (
	opCreateCluster = "create_cluster"
	opPutMember     = "put_member"
	opPlace         = "place"
	opPutModule     = "put_module"
	opBind          = "bind"
	opRollback      = "rollback"
	opPutSetting    = "put_setting"
)

// command is the bytes of one metadata command: a JSON object whose members
// besides v and op are those of the operation.
type command struct {
	Version    int         `json:"v"`
	Op         string      `json:"op"`
	Cluster    *Cluster    `json:"cluster,omitempty"`
	Founder    *Member     `json:"founder,omitempty"`
	Member     *Member     `json:"member,omitempty"`
	Place      []PlaceOn   `json:"place,omitempty"`
	Module     *Module     `json:"module,omitempty"`
	EntityType string      `json:"entityType,omitempty"`
	Digest     *Digest     `json:"digest,omitempty"`
	At         int64       `json:"at,omitempty"`
	Setting    *settingSet `json:"setting,omitempty"`
}

type settingSet struct {
	Key    string `json:"key"`
	Value  []byte `json:"value,omitempty"`
	Delete bool   `json:"delete,omitempty"`
}

// PlaceOn asks for voting replicas of a shard on the nodes, in order.
type PlaceOn struct {
	Shard sharding.ShardID  `json:"shard"`
	Nodes []sharding.NodeID `json:"nodes"`
}

// CreateCluster makes the command that turns an empty metadata shard into
// cluster c with one member, the founder. The founder's replica of the
// metadata shard gets FounderReplica. The same command again is accepted and
// changes nothing; another cluster is ErrClusterExists.
func CreateCluster(c Cluster, founder Member) []byte {
	return encode(command{Op: opCreateCluster, Cluster: &c, Founder: &founder})
}

// FounderReplica is the replica id of the founder's copy of the metadata
// shard: the first number of the counter.
const FounderReplica sharding.ReplicaID = 1

// PutMember makes the command that admits a member or changes its address or
// status.
func PutMember(m Member) []byte { return encode(command{Op: opPutMember, Member: &m}) }

// Place makes the command that gives each shard without a placement replicas
// on the named nodes, with fresh replica ids. A shard that has a placement
// keeps it. The result names the placements of all the shards asked for.
func Place(on ...PlaceOn) []byte { return encode(command{Op: opPlace, Place: on}) }

// PutModule makes the command that makes an uploaded module known. A module
// that is known already is left as it is.
func PutModule(m Module) []byte { return encode(command{Op: opPutModule, Module: &m}) }

// Bind makes the command that lets the module serve the entity type from a new
// revision on. Binding what is bound already keeps its revision. at is in unix
// nanoseconds.
func Bind(entityType string, digest Digest, at int64) []byte {
	return encode(command{Op: opBind, EntityType: entityType, Digest: &digest, At: at})
}

// Rollback makes the command that puts the previous module of the entity type
// back, under a new revision. It drops the current one from the history, so
// that a second rollback goes one further back.
func Rollback(entityType string, at int64) []byte {
	return encode(command{Op: opRollback, EntityType: entityType, At: at})
}

// PutSetting makes the command that sets a setting.
func PutSetting(key string, value []byte) []byte {
	return encode(command{Op: opPutSetting, Setting: &settingSet{Key: key, Value: value}})
}

// DeleteSetting makes the command that removes a setting; removing one that
// does not exist is accepted.
func DeleteSetting(key string) []byte {
	return encode(command{Op: opPutSetting, Setting: &settingSet{Key: key, Delete: true}})
}

func encode(c command) []byte {
	c.Version = commandVersion
	return mustJSON(c)
}

// mustJSON encodes the package's own types, none of which can fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("metadata: encode %T: %v", v, err))
	}
	return b
}

// decode reads one command. Members that this version does not know are a
// fault: to ignore them would be to apply another command than was proposed.
func decode(body []byte) (command, error) {
	var c command
	if len(body) > MaxCommandBytes {
		return c, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrInvalid, len(body), MaxCommandBytes)
	}
	if err := strictJSON(body, &c); err != nil {
		return c, fmt.Errorf("%w: not a command of version %d", ErrInvalid, commandVersion)
	}
	if c.Version != commandVersion {
		return c, fmt.Errorf("%w: version %d", ErrInvalid, c.Version)
	}
	return c, nil
}

func strictJSON(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("bytes after the value")
	}
	return nil
}
