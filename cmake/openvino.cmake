# OpenVINO as the target modeld::openvino, and MODELD_OPENVINO_LIBDIR: the folder of its libraries.
#
# Only what tools/setup.sh fetched is taken: its C++ interface is bound to one release.  The wheel has no
# file names without a version, which linking needs: they are links in the build folder.

set(openvino_fetched ${PROJECT_SOURCE_DIR}/.deps/openvino)
set(openvino_version 2026.4.1)
set(openvino_suffix 2641) # of its libraries
set(openvino_there OFF)
if(EXISTS ${openvino_fetched}/libs/libopenvino.so.${openvino_suffix})
    set(openvino_there ON)
endif()
set(MODELD_OPENVINO AUTO CACHE STRING "the engine `openvino`: ON, OFF, or AUTO: on where it was fetched")
if(MODELD_OPENVINO STREQUAL "AUTO")
    set(MODELD_OPENVINO ${openvino_there}) # for this run: the next one looks again
endif()

if(NOT MODELD_OPENVINO)
    message(STATUS "OpenVINO: left out")
    return()
endif()
if(NOT openvino_there)
    message(FATAL_ERROR "OpenVINO ${openvino_version} is not in ${openvino_fetched}: run tools/setup.sh (x86-64 only), "
        "or configure with -DMODELD_OPENVINO=OFF")
endif()

get_filename_component(MODELD_OPENVINO_LIBDIR ${openvino_fetched}/libs REALPATH)
set(openvino_links ${PROJECT_BINARY_DIR}/openvino)
file(MAKE_DIRECTORY ${openvino_links})
set(openvino_files)
foreach(name openvino openvino_gguf_frontend)
    file(CREATE_LINK ${MODELD_OPENVINO_LIBDIR}/lib${name}.so.${openvino_suffix} ${openvino_links}/lib${name}.so SYMBOLIC)
    list(APPEND openvino_files ${openvino_links}/lib${name}.so)
endforeach()

# Who links it sets BUILD_RPATH to MODELD_OPENVINO_LIBDIR: CMake puts the folder of the links into the run path, where the
# libraries have no names of their own.  (A linker option would stay in what is installed.)
add_library(modeld::openvino INTERFACE IMPORTED)
target_include_directories(modeld::openvino SYSTEM INTERFACE ${openvino_fetched}/include)
target_link_libraries(modeld::openvino INTERFACE ${openvino_files})
message(STATUS "OpenVINO ${openvino_version} in ${MODELD_OPENVINO_LIBDIR}")
