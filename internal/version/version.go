// SPDX-License-Identifier: Apache-2.0

// Package version names the build that is running.
package version

// version is set by the linker: the release, and the commit it was built from.
var version = "development"

// String returns the release and commit, such as "v0.1.0+1a2b3c4", or
// "development" for a binary that was not built by the Makefile.
func String() string { return version }
