package wire

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// maxChanges bounds the replicas that one entry may add and remove.
const maxChanges = 2 * MaxMembers

// MaxNote bounds the operator's note in a membership change.
const MaxNote = 512

// CheckChange decodes and validates the data of a membership change.
func CheckChange(data []byte) (*pb.ConfChangeV2, error) {
	change := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(data, change); err != nil {
		return nil, err
	}
	if n := len(change.GetChanges()); n > maxChanges {
		return nil, fmt.Errorf("%d membership changes in one entry, at most %d are allowed", n, maxChanges)
	}
	if t := change.GetTransition(); t < pb.ConfChangeTransitionAuto || t > pb.ConfChangeTransitionJointExplicit {
		return nil, fmt.Errorf("unknown transition %d", t)
	}
	for _, s := range change.GetChanges() {
		if s.GetNodeId() == 0 {
			return nil, fmt.Errorf("membership change of replica 0, which is not a valid id")
		}
		switch s.GetType() {
		case pb.ConfChangeAddNode, pb.ConfChangeAddLearnerNode, pb.ConfChangeRemoveNode:
		default:
			return nil, fmt.Errorf("unknown change type %d", s.GetType())
		}
	}
	return change, nil
}

// CheckMembers validates the data of a membership change.
func CheckMembers(data []byte) error {
	_, err := CheckChange(data)
	return err
}
