// Package workflowapi implements the WorkflowService of a node: it starts runs
// of workflows, waits for their ends, and lists them.
//
// A run is an entity of a workflow type. For commands and histories of runs, this
// package calls the EntityService in the same process. StartWorkflow, GetWorkflow
// and ListWorkflows run on the node that leads the shard, which reads the status of runs
// from its journal without calling a module.
//
// The package keeps no state and starts no goroutine that outlives a call.
package workflowapi
