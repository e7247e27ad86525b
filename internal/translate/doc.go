// SPDX-License-Identifier: Apache-2.0

// Package translate turns Kubernetes objects, and the attachments that the node
// remembers, into intent. Its functions are pure, and what they return does not
// depend on the order of what they are given. Which Network a pod joins is
// decided here and nowhere else.
//
// What is wrong with one object is a Problem that names it; all other objects
// are translated as if it were not there.
package translate
