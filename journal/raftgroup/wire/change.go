package wire

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// maxChanges bounds the replicas that one entry may add and remove.
const maxChanges = 2 * MaxMembers

// MaxNote bounds what an entry says of the change that it is.
const MaxNote = 512

// CheckChange says what is wrong with the data of an entry that changes members.
func CheckChange(data []byte) (*pb.ConfChangeV2, error) {
	change := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(data, change); err != nil {
		return nil, err
	}
	if n := len(change.GetChanges()); n > maxChanges {
		return nil, fmt.Errorf("%d changes", n)
	}
	if t := change.GetTransition(); t < pb.ConfChangeTransitionAuto || t > pb.ConfChangeTransitionJointExplicit {
		return nil, fmt.Errorf("transition %d", t)
	}
	for _, s := range change.GetChanges() {
		if s.GetNodeId() == 0 {
			return nil, fmt.Errorf("a change of replica 0")
		}
		switch s.GetType() {
		case pb.ConfChangeAddNode, pb.ConfChangeAddLearnerNode, pb.ConfChangeRemoveNode:
		default:
			return nil, fmt.Errorf("a change of type %d", s.GetType())
		}
	}
	return change, nil
}

// CheckMembers says what is wrong with the data of an entry that changes the
// members of a group.
func CheckMembers(data []byte) error {
	_, err := CheckChange(data)
	return err
}
