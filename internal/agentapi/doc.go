// SPDX-License-Identifier: Apache-2.0

// Package agentapi has the JSON types of the requests that an agent serves on its socket, and of
// the responses. It has no logic of the agent, so that clients link none of it.
package agentapi
