// SPDX-License-Identifier: Apache-2.0

// Package pipeline turns intent into the flows of the integration bridge. Intent knows no
// OpenFlow port: which Ports are on the bridge, and what leads to physical networks, is the other
// half of its Input.
//
// The pipeline is a list of features (see features in feature.go). A feature
// owns tables, and says for each kind of object which flows that object needs.
// What is compiled for one object depends on that object and on those that it
// looks up, never on when it came, so compiling a change gives the same flows as
// compiling everything anew.
//
// Every flow's cookie leads back to the feature and the object that made it, and
// of a flow that drops, to the reason; see Compiler.Explain.
//
// docs/develop/datapath.md draws the pipeline.
package pipeline
